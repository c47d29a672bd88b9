"""Predicted memory against what a run touches, which the timeline has no part in."""

import numpy as np
import pytest

from llmlab.checkpointing import policies, timeline
from llmlab.checkpointing.schedule import Kind, inference, training
from llmlab.engine import Engine
from llmlab.graph import ALIGNMENT
from llmlab.models import gpt2
from llmlab.parameters import Parameters

FLOAT32 = np.dtype("float32")


def memory_touched(calls, outputs, arena):
    """Bytes in use over time, from nothing but the arrays that were handed to the ops.

    A byte is in use from the call that first writes it until the last call that reads it before it is
    written anew; outputs are read at the end. Arrays start on the alignment and fill whole units of it, as
    the arena counts.
    """
    low = arena.__array_interface__["data"][0]
    units = arena.nbytes // ALIGNMENT
    in_use = np.zeros((len(calls) + 1, units), bool)
    since = np.full(units, -1)

    def range_of(array):
        start = array.__array_interface__["data"][0] - low
        return slice(start // ALIGNMENT, -(-(start + array.nbytes) // ALIGNMENT))

    def inside(array):
        start = getattr(array, "__array_interface__", {"data": (0,)})["data"][0]
        return isinstance(array, np.ndarray) and low <= start < low + arena.nbytes

    accesses = [(call.make.args, call.make.keywords.values()) for call in calls] + [(outputs, ())]
    for i, (reads, results) in enumerate(accesses):
        for array in filter(inside, reads):
            for unit in range(range_of(array).start, range_of(array).stop):
                in_use[since[unit]:i + 1, unit] = True
        for array in filter(inside, results):
            since[range_of(array)] = i
            in_use[i, range_of(array)] = True
    return in_use.sum(1) * ALIGNMENT


@pytest.mark.parametrize("policy", policies.POLICIES)
@pytest.mark.parametrize(("p", "logits_rows", "V"), [(0.0, None, 40), (0.1, None, 40), (0.0, 8, 2000)])
def test_predicted_peak_is_what_a_run_touches_and_what_the_engine_holds(policy, p, logits_rows, V):
    config = gpt2.Config(V=V, T=16, L=3, H=2, C=16, dropout=p)
    graph = gpt2.build(config, B=4, logits_rows=logits_rows)
    engine = Engine(graph, Parameters(graph.parameters), policy=policy)
    tokens = np.zeros((4, 16), int)
    engine.forward_backward(tokens, tokens)
    runner, = engine._runners
    program, _ = runner.programs["training", 4, 16, 0]
    touched = memory_touched(program.calls, program.outputs.values(), runner.arena).max()
    assert touched == engine.predicted_peak == runner.arena.nbytes
    assert engine.bytes_held == runner.arena.nbytes + engine.memory["inputs"]


def test_bytes_over_time_by_hand():
    """One block: the first bytes are the embedding's, the last the loss's, and every FREE lets go."""
    graph = gpt2.build(gpt2.Config(V=64, T=16, L=1, H=1, C=64), B=1)
    schedule = training(graph, policies.none(graph))
    held = timeline.bytes_held(schedule, graph, FLOAT32)
    NC = 16 * 64 * 4
    first_norm = NC + 2 * ALIGNMENT
    assert held[:3] == [NC, NC + first_norm, NC + first_norm + 3 * NC]
    assert held[-1] == ALIGNMENT + NC  # the loss, and d(embedding.x), let go by this last action
    assert schedule[-1].kind is Kind.FREE


def test_policies_order_the_peak():
    graph = gpt2.build(gpt2.Config(V=64, T=32, L=6, H=2, C=32), B=4)
    peaks = [timeline.peak(training(graph, policies.keep(name, graph)), graph, FLOAT32)
             for name in ("full", "selective", "none")]
    forward = timeline.peak(inference(graph, ["loss.loss"]), graph, FLOAT32)
    assert forward < peaks[0] < peaks[1] < peaks[2]


def test_low_precision_halves_what_follows_the_precision():
    graph = gpt2.build(gpt2.Config(V=64, T=32, L=2, H=2, C=32), B=4)
    schedule = training(graph, policies.none(graph))
    single, half = (timeline.peak(schedule, graph, np.dtype(t)) for t in ("float32", "float16"))
    assert 0.5 < half / single < 0.53
