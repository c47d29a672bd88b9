"""Warm-up and cosine, at their corners."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmlab.optim import warmup_cosine


def test_corners():
    lr = [warmup_cosine(step, 2e-3, warmup=10, total=101, final=0.1) for step in range(120)]
    assert lr[0] == pytest.approx(2e-4)
    assert lr[9] == lr[10] == 2e-3
    assert lr[55] == pytest.approx(2e-3 * 0.55)
    assert lr[100] == lr[119] == pytest.approx(2e-4)


@given(total=st.integers(1, 200), data=st.data())
def test_never_outside_its_range_and_falls_after_the_warm_up(total, data):
    warmup = data.draw(st.integers(0, total))
    lr = [warmup_cosine(step, 1.0, warmup, total, final=0.25) for step in range(total + 3)]
    assert all(0 < value <= 1 for value in lr)
    assert all(a >= b >= 0.25 for a, b in zip(lr[warmup:], lr[warmup + 1:]))


def test_is_a_python_float_whatever_comes_in():
    assert type(warmup_cosine(3, np.float64(1e-3), 2, 10)) is float
    assert (np.ones(1, np.float32) * warmup_cosine(3, np.float64(1e-3), 2, 10)).dtype == np.float32


@pytest.mark.parametrize("arguments", [(0, 1.0, 5, 4), (0, 1.0, 0, 0), (-1, 1.0, 0, 5), (0, 1.0, -1, 5),
                                       (0, -1.0, 0, 5), (0, float("nan"), 0, 5)])
def test_impossible_schedules_are_refused(arguments):
    with pytest.raises(ValueError, match="needs"):
        warmup_cosine(*arguments)
