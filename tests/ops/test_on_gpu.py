"""The text of every op on CuPy arrays: the same numbers as on NumPy's. The optimizer's text likewise."""

import inspect

import numpy as np
import pytest

from llmlab.arrays import bfloat16, float32, float64, to_numpy
from llmlab.optim import adamw

TOLERANCE = {float64: 1e-11, float32: 2e-5, bfloat16: 2e-2}


def names(function):
    parameters = inspect.signature(function).parameters.values()
    return ([p.name for p in parameters if p.kind is not p.KEYWORD_ONLY],
            [p.name for p in parameters if p.kind is p.KEYWORD_ONLY])


def call(function, available):
    takes, gives = names(function)
    values = function.text(**{n: available[n] for n in takes if n in available})
    return dict(zip(gives, values if isinstance(values, tuple) else (values,), strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda d: d.name)
def test_text_runs_on_cupy(case, dtype):
    import cupy

    generator = np.random.default_rng(0)
    arguments = {n: a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == float64 else a
                 for n, a in case.arguments(generator, B=2, T=33, C=24).items()}
    outputs = call(case.op.forward, arguments)
    dys = {f"d{n}": np.asarray(generator.standard_normal(v.shape)).astype(v.dtype)
           for n, v in outputs.items() if f"d{n}" in names(case.op.backward)[0]}
    available = {**arguments, **outputs, **dys}
    expected = {**outputs, **call(case.op.backward, available)}
    on_gpu = {n: cupy.asarray(a) if isinstance(a, np.ndarray) else a for n, a in available.items()}
    got = {**call(case.op.forward, on_gpu), **call(case.op.backward, on_gpu)}
    for name, value in expected.items():
        assert isinstance(got[name], cupy.ndarray)
        assert got[name].dtype == value.dtype
        scale = max(1, np.abs(value.astype(float64)).max(initial=0))
        difference = np.abs(to_numpy(got[name]).astype(float64) - value.astype(float64)).max(initial=0)
        assert difference <= TOLERANCE[dtype] * scale, name


@pytest.mark.gpu
def test_adamw_text_runs_on_cupy():
    import cupy

    generator = np.random.default_rng(0)
    p, g, m = generator.standard_normal((3, 1000)).astype(np.float32)
    results = []
    for xp in (np, cupy):
        master, grad, first, second = (xp.asarray(a.copy()) for a in (p, g, m, m**2))
        compute, updates = xp.zeros(1000, bfloat16), xp.zeros(1, np.int64)
        norm = adamw.step.text(master, grad, first, second, compute, updates, 1e-2, 0.5,
                               0.9, 0.95, 1e-8, 0.1, 1.0, 500)
        results.append([to_numpy(a).astype(float64) for a in (master, first, second, compute, norm, updates)])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)
