"""Softmax: rows sum to one, shifts change nothing, large numbers do not overflow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmlab.arrays import bfloat16, float16, float32, float64
from llmlab.ops import gelu, softmax

SUMS = {float64: 1e-14, float32: 1e-6, float16: 2e-3, bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", list(SUMS), ids=lambda d: d.name)
@given(shift=st.floats(-60, 60), C=st.integers(1, 40))
def test_rows_sum_to_one(dtype, shift, C):
    x = (np.random.default_rng(C).standard_normal((3, C)) + shift).astype(dtype)
    y = softmax.forward(x)
    np.testing.assert_allclose(y.astype(float64).sum(-1), 1, atol=SUMS[dtype])


def test_shifts_change_nothing():
    x = np.arange(12, dtype=float32).reshape(3, 4)
    np.testing.assert_array_equal(softmax.forward(x + 1000), softmax.forward(x))


def test_large_numbers_do_not_overflow():
    assert softmax.forward(np.array([1e38, -1e38], float32)).tolist() == [1, 0]


def test_gelu_is_right_far_out():
    x = np.array([-1e4, -20, -9.5, 9.5, 20, 1e4], float32)
    np.testing.assert_allclose(gelu.forward(x), [0, 0, 0, 9.5, 20, 1e4], atol=1e-6)
    np.testing.assert_allclose(gelu.backward(np.ones_like(x), x)[0], [0, 0, 0, 1, 1, 1], atol=1e-6)
