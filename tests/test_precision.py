"""Precision: names, dtypes, and fp16 training that survives an overflow."""

import numpy as np
import pytest

from llmlab.engine import Engine
from llmlab.models import gpt2
from llmlab.optim import AdamW
from llmlab.parameters import Parameters
from llmlab.precision import Precision


@pytest.mark.parametrize(("name", "dtype", "scaled"), [
    ("fp32", "float32", False), ("bf16", "bfloat16", False), ("fp16", "float16", True),
    ("float64", "float64", False), ("float16", "float16", True)])
def test_names(name, dtype, scaled):
    precision = Precision(name)
    assert precision.compute.name == dtype
    assert precision.scaled == scaled
    assert (precision.loss_scale() is not None) == scaled
    assert precision == Precision(dtype)


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_every_precision_learns_a_batch_by_heart(name):
    """Masters and gradients stay float32; an fp16 scale that overflows refuses steps until it fits."""
    precision = Precision(name)
    config = gpt2.Config(V=11, T=8, L=2, H=2, C=16)
    graph = gpt2.build(config, B=2)
    parameters = Parameters(graph.parameters, dtype=precision.compute)
    gpt2.initialise(parameters, config, seed=0)
    engine, optimizer, scale = Engine(graph, parameters), AdamW(parameters), precision.loss_scale()
    if scale:
        scale.scale[...], scale.inverse[...] = 2.0**24, 2.0**-24
    tokens = np.random.default_rng(0).integers(0, 11, (2, 9))
    losses = []
    for _ in range(60):
        loss = engine.forward_backward(tokens[:, :-1], tokens[:, 1:], scale=scale.scale if scale else None)
        norm = optimizer.step(1e-2, scale.inverse if scale else 1.0)
        if scale:
            scale.update(norm)
        parameters.zero_grad()
        losses.append(float(loss))
    assert parameters.master.dtype == parameters.gradient.dtype == np.float32
    assert np.isfinite(parameters.master).all()
    assert losses[-1] < 0.3 * losses[0]
    if scale:
        assert 0 < int(optimizer.updates[0]) < 60
        assert float(scale.scale[0]) < 2.0**24
