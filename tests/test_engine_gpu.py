"""The engine on a GPU: the same numbers, the same bits, no waiting, no growth."""

import dataclasses
import logging
import time

import numpy as np
import pytest

from llmlab.checkpointing import policies
from llmlab.engine import Engine
from llmlab.models import gpt2
from llmlab.optim import AdamW, LossScale
from llmlab.parameters import Parameters

pytestmark = pytest.mark.gpu

CONFIG = gpt2.Config(V=300, T=128, L=3, H=2, C=128, vocabulary_multiple=64)
B = 4


def batch(seed=0):
    generator = np.random.default_rng(seed)
    tokens, targets = generator.integers(0, CONFIG.V, (2, B, CONFIG.T))
    targets[generator.random(targets.shape) < 0.2] = -100
    return tokens, targets


def make(dtype="float32", config=CONFIG, device="cuda", logits_rows=None, **options):
    graph = gpt2.build(config, B, logits_rows=logits_rows)
    parameters = Parameters(graph.parameters, dtype=dtype, device=device)
    gpt2.initialise(parameters, config, seed=1)
    return Engine(graph, parameters, **options)


def gradient(engine, *arguments, **options):
    engine.parameters.zero_grad()
    loss = engine.forward_backward(*arguments, **options)
    return float(loss), engine.parameters.gradient.copy()


def relative(a, b):
    a, b = (np.asarray(getattr(x, "get", lambda x=x: x)(), np.float64) for x in (a, b))
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2), ("float16", 3e-3)])
@pytest.mark.parametrize("logits_rows", [None, 100])
def test_loss_and_gradient_equal_the_texts_in_float64(dtype, tolerance, logits_rows):
    scale = 1024.0 if dtype == "float16" else 1.0
    loss, expected = gradient(make("float64", device="cpu"), *batch())
    got_loss, got = gradient(make(dtype, logits_rows=logits_rows), *batch(), scale=scale)
    assert got_loss == pytest.approx(loss, rel=tolerance)
    assert relative(got / scale, expected) < tolerance


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("p", "logits_rows"), [(0.0, None), (0.1, None), (0.1, 100)])
def test_policies_graphs_and_runs_give_the_same_bits(dtype, p, logits_rows):
    config = dataclasses.replace(CONFIG, dropout=p)
    reference = make(dtype, config, logits_rows=logits_rows, capture=False)
    expected = [gradient(reference, *batch(i)) for i in range(4)]
    for policy in policies.POLICIES:
        engine = make(dtype, config, logits_rows=logits_rows, policy=policy)
        for i, (loss, grad) in enumerate(expected):  # the third and fourth run launch a CUDA graph
            got_loss, got = gradient(engine, *batch(i))
            assert got_loss == loss
            assert (got == grad).all()
        program, _ = engine._runners[0].programs["training", B, CONFIG.T, 0]
        assert program.graph is not None


@pytest.mark.parametrize("logits_rows", [None, 100])
def test_a_step_never_waits_for_the_device(logits_rows, spin):
    """With the device busy for a second, steps are issued and the host is back long before it is done."""
    import cupy

    engine = make("float16", logits_rows=logits_rows)
    optimizer, scale = AdamW(engine.parameters), LossScale(device="cuda")

    def step(i):
        loss = engine.forward_backward(*batch(i), scale=scale.scale)
        scale.update(optimizer.step(1e-3, scale.inverse))
        engine.parameters.zero_grad()
        return loss

    for i in range(4):
        step(i)
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    spin(1.0)
    losses = [step(i) for i in range(3)]
    issued = time.perf_counter() - start
    cupy.cuda.Device().synchronize()
    done = time.perf_counter() - start
    assert issued < 0.5 < 0.9 < done
    assert all(np.isfinite(float(loss)) for loss in losses)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_no_memory_grows_over_a_thousand_steps(dtype):
    import cupy

    pool = cupy.get_default_memory_pool()
    engine = make(dtype)
    optimizer, scale = AdamW(engine.parameters), LossScale(interval=100, device="cuda")  # grows, overflows
    tokens, targets = batch()
    for i in range(1000):
        engine.forward_backward(tokens, targets, scale=scale.scale)
        scale.update(optimizer.step(1e-4, scale.inverse))
        engine.parameters.zero_grad()
        if i == 10:
            before = pool.total_bytes(), engine.bytes_held
    assert (pool.total_bytes(), engine.bytes_held) == before


@pytest.mark.parametrize("policy", policies.POLICIES)
@pytest.mark.parametrize("logits_rows", [None, 2048])
def test_predicted_peak_is_what_the_pool_holds(policy, logits_rows):
    import cupy

    config = gpt2.Config(V=2048, T=512, L=8, H=8, C=512)  # large beside the 4 MB of workspaces
    graph = gpt2.build(config, 32, logits_rows=logits_rows)
    parameters = Parameters(graph.parameters, dtype="bfloat16", device="cuda")
    gpt2.initialise(parameters, config, seed=0)
    tokens = np.zeros((32, 512), np.int32)
    Engine(graph, parameters, policy=policy).forward_backward(tokens, tokens)  # compiles, makes handles
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    engine = Engine(graph, parameters, policy=policy)
    for _ in range(3):
        engine.forward_backward(tokens, tokens)
    held = pool.total_bytes() - before + engine.memory["captured"]
    print(f"{policy}: predicted {engine.predicted_peak:,}, held {held:,}, {engine.memory}")
    assert held == pytest.approx(engine.predicted_peak, rel=0.02)


def test_where_recording_fails_the_step_still_runs(caplog):
    engine = make()
    runner, = engine._runners
    _, expected = gradient(engine, *batch())
    program, _ = runner.programs["training", B, CONFIG.T, 0]
    first = program.calls[0]

    def reads_back():
        result = first.make()
        float(engine.parameters.gradient[0])  # waits, which a recording refuses
        return result

    program.calls[0] = dataclasses.replace(first, make=reads_back)
    with caplog.at_level(logging.WARNING):
        _, got = gradient(engine, *batch())
    assert "no CUDA graph" in caplog.text
    assert (got == expected).all()


def test_targets_and_weights_on_the_device():
    import cupy

    engine = make()
    tokens, targets = batch()
    loss, expected = gradient(engine, tokens, targets, weight=0.5)
    weight = cupy.full(1, 0.5, np.float32)
    got_loss, got = gradient(engine, cupy.asarray(tokens), cupy.asarray(targets), weight=weight)
    assert got_loss == loss
    assert (got == expected).all()


@pytest.mark.parametrize("logits_rows", [None, 100])
def test_forward_only(logits_rows):
    engine = make(logits_rows=logits_rows)
    expected = make("float64", device="cpu")
    assert float(engine.loss(*batch())) == pytest.approx(float(expected.loss(*batch())), rel=1e-5)
    assert relative(engine.logits(batch()[0]), expected.logits(batch()[0])) < 1e-5
