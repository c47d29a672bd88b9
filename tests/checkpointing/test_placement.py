"""Placement: nobody overlaps, nothing is wasted where it need not be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmlab.checkpointing import policies, timeline
from llmlab.checkpointing.placement import place
from llmlab.checkpointing.schedule import inference, training
from llmlab.checkpointing.timeline import Storage
from llmlab.models import gpt2


@st.composite
def storages(draw):
    found = []
    for number in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 10))
        found.append(Storage(number, 256 * draw(st.integers(1, 5)), start, start + draw(st.integers(0, 10))))
    return found


@given(storages())
def test_neighbours_in_time_are_apart_in_memory(found):
    offsets, size = place(found)
    for a in found:
        assert 0 <= offsets[a.number] <= size - a.nbytes
        for b in found:
            if a.number < b.number and a.start <= b.end and b.start <= a.end:
                first, second = sorted((a, b), key=lambda s: offsets[s.number])
                assert offsets[first.number] + first.nbytes <= offsets[second.number]


@pytest.mark.parametrize("policy", policies.POLICIES)
@pytest.mark.parametrize(("L", "V"), [(1, 64), (4, 256), (12, 50257)])
@pytest.mark.parametrize(("p", "logits_rows"), [(0.0, None), (0.1, None), (0.0, 64)])
def test_the_arena_of_a_gpt2_is_no_larger_than_the_peak(policy, L, V, p, logits_rows):
    graph = gpt2.build(gpt2.Config(V=V, T=64, L=L, H=4, C=64, dropout=p), B=4, logits_rows=logits_rows)
    assert excess(training(graph, policies.keep(policy, graph)), graph) == 0
    assert excess(inference(graph, ["loss.loss"]), graph) == 0


def excess(schedule, graph):
    """What the arena has over the peak, as a share of the peak."""
    peak = timeline.peak(schedule, graph, np.dtype("float32"))
    _, size = place(timeline.storages(schedule, graph, np.dtype("float32")), peak)
    return size / peak - 1
