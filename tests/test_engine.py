"""The engine: same bits by every policy, memory as planned, micro-batches and workers that add up."""

import dataclasses
import functools
import gc
import threading
import tracemalloc

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from llmlab.checkpointing import policies, timeline
from llmlab.checkpointing.schedule import Kind
from llmlab.engine import Engine
from llmlab.models import gpt2
from llmlab.parameters import Parameters

CONFIG = gpt2.Config(V=13, T=8, L=2, H=2, C=16)
B = 4


@functools.cache
def batch(seed=0):
    generator = np.random.default_rng(seed)
    tokens, targets = generator.integers(0, CONFIG.V, (2, B, CONFIG.T))
    targets[generator.random(targets.shape) < 0.2] = -100
    return tokens, targets


def make(config=CONFIG, dtype="float32", logits_rows=None, **options):
    graph = gpt2.build(config, B, logits_rows=logits_rows)
    parameters = Parameters(graph.parameters, dtype=dtype)
    gpt2.initialise(parameters, config, seed=1)
    return Engine(graph, parameters, **options)


def gradient(engine, *arguments, **options):
    engine.parameters.zero_grad()
    loss = engine.forward_backward(*arguments, **options)
    return loss, engine.parameters.gradient.copy()


# Policies

@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(("p", "logits_rows"), [(0.0, None), (0.1, None), (0.1, 5)])
def test_every_policy_gives_the_same_bits(dtype, workers, p, logits_rows):
    """Dropout's masks, and the dtype of the forward pass, are repeated by recomputation."""
    config = dataclasses.replace(CONFIG, L=4, dropout=p)
    steps = {}
    for policy in (*policies.POLICIES, frozenset()):
        engine = make(config, dtype, logits_rows, policy=policy, workers=workers)
        steps[policy] = [gradient(engine, *batch(seed)) for seed in (0, 1)]
        assert engine.step == 2
    for losses in steps.values():
        for (loss, grad), (expected_loss, expected) in zip(losses, steps["none"]):
            assert loss == expected_loss
            np.testing.assert_array_equal(grad, expected)
    (_, first), (_, second) = steps["none"]
    assert (first != second).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_keeping_gelus_slope_changes_neither_bits_nor_bytes(dtype):
    expected = make(dtype=dtype)
    graph = gpt2.build(CONFIG, B, keep_slope=True)
    parameters = Parameters(graph.parameters, dtype=dtype)
    gpt2.initialise(parameters, CONFIG, seed=1)
    for policy in policies.POLICIES:
        engine = Engine(graph, parameters, policy=policy)
        loss, grad = gradient(engine, *batch())
        assert loss == gradient(expected, *batch())[0]
        np.testing.assert_array_equal(grad, gradient(expected, *batch())[1])
    assert Engine(graph, parameters).predicted_peak == expected.predicted_peak


@pytest.mark.parametrize("logits_rows", [1, 5, B * CONFIG.T, B * CONFIG.T + 5])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("vocabulary_multiple", [1, 8])
def test_logits_by_chunks_are_the_same_network(logits_rows, workers, vocabulary_multiple):
    """Some chunks have no target at all, and the worker with the last sequence has none."""
    config = dataclasses.replace(CONFIG, vocabulary_multiple=vocabulary_multiple)
    tokens, targets = batch()
    targets = targets.copy()
    targets[0, 2:], targets[-1] = -100, -100
    whole, chunked = make(config, "float64"), make(config, "float64", logits_rows, workers=workers)
    for b, t in ((B, CONFIG.T), (1, CONFIG.T), (2, 3)):
        loss, expected = gradient(whole, tokens[:b, :t], targets[:b, :t])
        got_loss, got = gradient(chunked, tokens[:b, :t], targets[:b, :t])
        np.testing.assert_allclose(got_loss, loss, rtol=1e-12)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(chunked.loss(tokens[:b, :t], targets[:b, :t]), loss, rtol=1e-12)
        logits = chunked.logits(tokens[:b, :t])
        assert logits.shape == (b, t, config.V)
        np.testing.assert_allclose(logits, whole.logits(tokens[:b, :t]), rtol=1e-12, atol=1e-14)


def test_dropout_draws_a_new_mask_in_each_step_and_the_same_for_the_same_step():
    engine = make(dataclasses.replace(CONFIG, dropout=0.3))
    first, second = (gradient(engine, *batch())[1] for _ in range(2))
    assert (first != second).any()
    engine.step = 0
    np.testing.assert_array_equal(gradient(engine, *batch())[1], first)


def test_workers_draw_their_parts_of_one_mask():
    config = dataclasses.replace(CONFIG, dropout=0.3)
    _, alone = gradient(make(config, "float64"), *batch())
    _, shared = gradient(make(config, "float64", workers=4), *batch())
    np.testing.assert_allclose(shared, alone, rtol=0, atol=1e-15)


def test_evaluation_drops_nothing_and_leaves_the_random_stream_alone():
    engine, plain = make(dataclasses.replace(CONFIG, dropout=0.3)), make()
    assert float(engine.loss(*batch())) == pytest.approx(float(plain.loss(*batch())), rel=1e-6)
    np.testing.assert_allclose(engine.logits(batch()[0]), plain.logits(batch()[0]), rtol=1e-4, atol=1e-5)
    assert engine.step == 0
    assert float(engine.forward_backward(*batch())) != pytest.approx(float(plain.loss(*batch())), rel=1e-4)


# Memory

@pytest.mark.parametrize("logits_rows", [None, 5])
def test_memory_let_go_is_never_read_again(logits_rows):
    """Between any two calls, fill every byte of the arena that the schedule calls free with NaN."""
    clean, poisoned = (make(policy="selective", logits_rows=logits_rows) for _ in range(2))
    expected = gradient(clean, *batch())
    poisoned.forward_backward(*batch())
    runner, = poisoned._runners
    key = next(k for k in runner.programs if k[0] == "training")
    program, _ = runner.programs[key]
    program.calls = _poison_between(program.calls, program.outputs, runner.arena)
    loss, grad = gradient(poisoned, *batch())
    assert loss == expected[0]
    np.testing.assert_array_equal(grad, expected[1])


def _poison_between(calls, outputs, arena):
    def arrays(call):
        return [a for a in (*call.make.args, *call.make.keywords.values())
                if isinstance(a, np.ndarray) and np.shares_memory(a, arena)]

    last_use = {}
    for i, call in enumerate(calls):
        for a in arrays(call):
            last_use[a.ctypes.data] = i
    result = []
    for i, call in enumerate(calls):
        dead = [a for a in arrays(call) if last_use[a.ctypes.data] == i
                and not any(np.shares_memory(a, o) for o in outputs.values())]

        def make(call=call, dead=dead):
            call.make()
            for a in dead:
                a.view(np.uint8).fill(255)  # NaN in every floating-point dtype

        result.append(dataclasses.replace(call, make=make))
    return result


def test_a_step_allocates_nothing_that_stays():
    config = dataclasses.replace(CONFIG, T=64, C=64)
    tokens = np.zeros((B, 64), int)
    engine = make(config)
    tracemalloc.start()
    held = []
    for _ in range(6):
        engine.forward_backward(tokens, tokens)
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    smallest_activation = B * 64 * 64 * 4
    assert held[-1] - held[2] < smallest_activation / 4  # the ops' scratch has grown by then


def test_an_engine_allocates_what_it_predicts():
    config = dataclasses.replace(CONFIG, T=64, C=64, L=6)
    graph = gpt2.build(config, B)
    parameters = Parameters(graph.parameters)
    tracemalloc.start()
    engine = Engine(graph, parameters, workers=2)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    predicted = engine.predicted_peak + engine.memory["worker_gradients"] + engine.memory["inputs"]
    assert engine.bytes_held == predicted
    assert predicted <= held < predicted + 0.05 * predicted


@pytest.mark.parametrize("policy", policies.POLICIES)
def test_of_logits_by_chunks_no_more_exist_in_training_and_evaluation(policy):
    """Predictions, which are as large, are not in the arena: they go to whoever asked."""
    config = gpt2.Config(V=512, T=64, L=3, H=2, C=16)
    rows, row = 32, 4 * 512
    logits = B * config.T * row
    engine = make(config, logits_rows=rows, policy=policy)
    for name in ("training", "loss"):
        plan = engine.plans[name]
        found = timeline.storages(plan.schedule, plan.graph, plan.compute)
        assert max(s.nbytes for s in found) == rows * row
    assert engine.memory["arena"] == engine.predicted_peak
    assert (policy == "full") == (engine.predicted_peak < logits)
    if policy == "none":
        assert engine.predicted_peak < make(config, policy=policy).predicted_peak - 0.8 * logits
    tokens = np.zeros((B, config.T), int)
    engine.forward_backward(tokens, tokens)  # grows scratch
    tracemalloc.start()
    engine.forward_backward(tokens, tokens)
    engine.loss(tokens, tokens)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < logits / 2


# Batches

def test_smaller_batches_run_in_the_same_memory():
    tokens, targets = batch()
    engine = make(workers=2)
    for b, t in ((1, 3), (3, 8), (4, 1)):
        small = gpt2.build(dataclasses.replace(CONFIG), b)
        parameters = Parameters(small.parameters)
        gpt2.initialise(parameters, CONFIG, seed=1)
        loss, expected = gradient(Engine(small, parameters), tokens[:b, :t], targets[:b, :t])
        got_loss, got = gradient(engine, tokens[:b, :t], targets[:b, :t])
        np.testing.assert_allclose(got_loss, loss, rtol=1e-6)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("split", [(4,), (1, 3), (2, 2), (1, 1, 1, 1)])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_micro_batches_weighted_by_tokens_add_up_to_the_batch(split, workers):
    """Never the mean of means; a part without a single valid token adds nothing."""
    tokens, targets = (x.copy() for x in batch())
    targets[3] = -100
    engine = make()
    loss, expected = gradient(engine, tokens, targets)
    parts = make(workers=workers)
    total, start = 0.0, 0
    for rows in split:
        part = slice(start, start + rows)
        share = np.count_nonzero(targets[part] != -100) / np.count_nonzero(targets != -100)
        before = parts.parameters.gradient.copy()
        total += parts.forward_backward(tokens[part], targets[part], weight=share)
        if share == 0:
            np.testing.assert_array_equal(parts.parameters.gradient, before)
        start += rows
    np.testing.assert_allclose(total, loss, rtol=1e-6)
    np.testing.assert_allclose(parts.parameters.gradient, expected, rtol=0, atol=1e-6)


def test_two_micro_batches_by_the_numbers():
    """Summed losses 6 over 3 tokens and 10 over 1 token make 16/4 = 4, not 6."""
    engine = make()
    tokens, _ = batch()
    targets = np.full((2, 4), -100)
    targets[0, :3], targets[1, 0] = tokens[0, :3], tokens[1, 0]
    a, b = (float(engine.loss(tokens[i:i + 1, :4], targets[i:i + 1])) for i in range(2))
    both = float(make(workers=2).loss(tokens[:2, :4], targets))
    assert both == pytest.approx((3 * a + b) / 4, rel=1e-6)
    assert both != pytest.approx((a + b) / 2, rel=1e-6)


def test_nothing_to_learn_gives_zero_and_no_nan():
    engine = make(workers=2)
    loss, grad = gradient(engine, batch()[0], np.full((B, CONFIG.T), -100))
    assert loss == 0
    assert not grad.any()


def test_gradients_are_added():
    engine = make()
    _, once = gradient(engine, *batch())
    engine.forward_backward(*batch())
    np.testing.assert_allclose(engine.parameters.gradient, 2 * once, rtol=1e-6, atol=1e-9)


def test_scale_acts_on_the_gradient_and_not_on_the_loss():
    engine = make()
    loss, grad = gradient(engine, *batch())
    scaled_loss, scaled = gradient(engine, *batch(), scale=np.float32(1024))
    assert scaled_loss == loss
    np.testing.assert_array_equal(scaled, grad * 1024)


@pytest.mark.parametrize("factor", [2, np.float32(2), np.full(1, 2.0), np.full((), 2.0)], ids=repr)
def test_factors_of_the_loss_may_be_of_any_kind(factor):
    engine = make()
    _, grad = gradient(engine, *batch())
    np.testing.assert_array_equal(gradient(engine, *batch(), weight=factor)[1], 2 * grad)
    np.testing.assert_array_equal(gradient(engine, *batch(), scale=factor)[1], 2 * grad)


def test_no_dtype_is_promoted():
    """Float64 scalars from the host change no dtype."""
    engine = make(dtype="bfloat16")
    loss, grad = gradient(engine, *batch(), weight=np.float64(0.5), scale=np.float64(2))
    assert loss.dtype == grad.dtype == np.float32


def test_same_number_of_workers_same_bits():
    runs = [gradient(make(workers=3), *batch())[1] for _ in range(3)]
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])


def test_an_error_in_a_worker_arrives_and_does_no_harm():
    engine = make(workers=2)
    tokens, targets = batch()
    bad = tokens.copy()
    bad[3, 0] = CONFIG.V
    with pytest.raises(ValueError, match="tokens"):
        engine.forward_backward(bad, targets)
    expected = gradient(make(workers=2), tokens, targets)[1]
    np.testing.assert_array_equal(gradient(engine, tokens, targets)[1], expected)


def test_an_interrupted_step_leaves_nothing_to_the_next():
    def interrupt(action, node):
        if action.kind is Kind.BACKWARD and node.name == "h.0.attn":
            raise KeyboardInterrupt

    engine = make(workers=2)
    expected = gradient(engine, *batch())[1]
    engine.observer = interrupt
    with pytest.raises(KeyboardInterrupt):
        engine.forward_backward(*batch())
    engine.observer = None
    np.testing.assert_array_equal(gradient(engine, *batch())[1], expected)


# Forward only

def test_forward_only_equals_training_in_less_memory():
    engine = make(dataclasses.replace(CONFIG, L=6))
    loss, _ = gradient(engine, *batch())
    assert engine.loss(*batch()) == pytest.approx(float(loss), rel=1e-6)
    assert engine.plans["loss"].peak < 0.3 * engine.plans["training"].peak


def test_logits_are_a_copy_and_causal():
    engine = make(workers=2)
    tokens, _ = batch()
    logits = engine.logits(tokens)
    kept = logits.copy()
    changed = tokens.copy()
    changed[:, 5:] = 0
    np.testing.assert_array_equal(engine.logits(changed)[:, :5], logits[:, :5])
    np.testing.assert_array_equal(logits, kept)
    assert logits.shape == (B, CONFIG.T, CONFIG.V)


def test_padded_vocabulary_changes_nothing():
    padded = dataclasses.replace(CONFIG, vocabulary_multiple=8)
    plain, wide = make(), make(padded)
    assert wide.parameters["wte.weight"].shape == (16, CONFIG.C)
    for name in plain.parameters:
        source = plain.parameters.master_views[name]
        wide.parameters.master_views[name][:len(source)] = source
    loss, _ = gradient(plain, *batch())
    wide_loss, _ = gradient(wide, *batch())
    assert wide_loss == pytest.approx(float(loss), rel=1e-6)
    np.testing.assert_allclose(
        wide.parameters.grad["wte.weight"][:13], plain.parameters.grad["wte.weight"], rtol=1e-4, atol=1e-7)
    assert not wide.parameters.grad["wte.weight"][13:].any()
    assert wide.logits(batch()[0]).shape == (B, CONFIG.T, CONFIG.V)


# Around a step

def test_the_observer_sees_every_call_before_and_after():
    seen = []
    engine = make(policy="full", observer=lambda action, node: seen.append((action.kind, node.name)))
    engine.forward_backward(*batch())
    assert seen[::2] == seen[1::2]
    assert {kind for kind, _ in seen} == set(Kind) - {Kind.FREE}


def blas_threads():
    return next(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


@pytest.mark.parametrize("end", ["close", "forget"])
def test_workers_and_the_limit_on_blas_end_with_the_engine(end):
    with threadpool_limits(2, user_api="blas"):
        before = threading.active_count()
        engine = make(workers=3)
        engine.forward_backward(*batch())
        assert blas_threads() == 1
        if end == "close":
            engine.close()
        del engine
        gc.collect()
        assert blas_threads() == 2
        assert threading.active_count() == before or end == "forget"  # a pool's threads end a moment later
