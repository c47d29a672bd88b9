"""The loss scale's kernel: text, emulated and CUDA against the rule in plain Python, bit for bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab import kernels
from llmlab.arrays import to_numpy
from llmlab.optim import LossScale, loss_scaling

RULE = {"growth": 2.0, "backoff": 0.5, "interval": 3, "minimum": 1.0, "maximum": 64.0}


def expected(scale, good, stuck, norm, growth, backoff, interval, minimum, maximum):
    """The state after a step: scale, good, stuck."""
    scale, minimum, maximum = map(np.float32, (scale, minimum, maximum))
    if not math.isfinite(norm):
        return max(scale * np.float32(backoff), minimum), 0, stuck + int(scale <= minimum)
    if good + 1 < interval:
        return scale, good + 1, stuck
    return min(scale * np.float32(growth), maximum), 0, stuck


def moves(backend, scale, good, norms, stuck=0, **rule):
    """The path of scale, good and stuck on the backend."""
    scale, inverse = (backend.array(np.full(1, value, np.float32)) for value in (scale, math.nan))
    good, stuck = (backend.array(np.full(1, value, np.int32)) for value in (good, stuck))
    path = []
    for norm in norms:
        norm = backend.array(np.full(1, norm, np.float32))
        moved = backend(loss_scaling.update, scale, inverse, good, stuck, norm, **{**RULE, **rule})
        path.append(tuple(to_numpy(a)[0].item() for a in (scale, good, stuck)))
        assert moved.tolist() == [path[-1][0]]
        np.testing.assert_array_equal(to_numpy(inverse), np.float32(1) / np.float32(path[-1][0]))
    return path


GOOD, BAD = 1.0, math.inf


def test_grows_after_an_interval_and_counts_again(backend):
    assert moves(backend, 8, 0, [GOOD] * 4) == [(8, 1, 0), (8, 2, 0), (16, 0, 0), (16, 1, 0)]


def test_a_refused_step_backs_off_and_ends_the_count(backend):
    assert moves(backend, 8, 2, [BAD, GOOD, GOOD]) == [(4, 0, 0), (4, 1, 0), (4, 2, 0)]


def test_the_ceiling(backend):
    assert moves(backend, 32, 0, [GOOD] * 3, interval=1, maximum=48.0) == [(48, 0, 0)] * 3
    huge = 2.0**96
    assert moves(backend, huge, 0, [GOOD], interval=1, maximum=huge) == [(huge, 0, 0)]


def test_the_floor_and_the_count_of_steps_stuck_on_it(backend):
    assert moves(backend, 3, 0, [BAD, BAD, BAD, GOOD, BAD], stuck=5) == [
        (1.5, 0, 5), (1, 0, 5), (1, 0, 6), (1, 1, 6), (1, 0, 7)
    ]  # fmt: skip


@pytest.mark.parametrize("norm", [math.inf, -math.inf, math.nan])
def test_norms_that_are_not_finite(backend, norm):
    assert moves(backend, 8, 1, [norm]) == [(4, 0, 0)]


@pytest.mark.parametrize("norm", [0.0, 3.4e38, 1e-45])
def test_norms_that_are(backend, norm):
    assert moves(backend, 8, 1, [norm]) == [(8, 2, 0)]


def test_a_count_past_the_interval_grows_at_once(backend):
    """As in a run resumed with a shorter interval."""
    assert moves(backend, 8, 100, [GOOD]) == [(16, 0, 0)]


@settings(max_examples=30, derandomize=True)
@given(
    norms=st.lists(st.floats(width=32) | st.just(GOOD), min_size=1, max_size=30),
    growth=st.floats(1.001, 4),
    backoff=st.floats(0.1, 0.99),
    interval=st.integers(1, 4),
    minimum=st.floats(0.01, 10),
    room=st.floats(1, 1000),
    start=st.floats(0, 1),
)
def test_any_norms_by_any_rule(backend, norms, growth, backoff, interval, minimum, room, start):
    rule = {"growth": growth, "backoff": backoff, "interval": interval}
    rule |= {"minimum": minimum, "maximum": minimum * room}
    state = np.float32(minimum * room**start), 0, 0
    path = []
    for norm in norms:
        state = expected(*state, norm, **rule)
        path.append(tuple(map(float, state)))
    assert moves(backend, minimum * room**start, 0, norms, **rule) == path


def test_a_move_is_one_launch():
    scale = LossScale(initial=8.0, interval=1)
    with kernels.emulated("profile") as profiles:
        scale.update(np.ones(1, np.float32))
    assert len(profiles) == 1
    assert scale.scale == 16


def test_a_norm_in_float64_runs_the_text():
    scale = LossScale(initial=8.0, interval=1)
    with kernels.emulated("profile") as profiles:
        scale.update(np.ones(1))
    assert not profiles
    assert scale.scale == 16
