"""GELU that keeps its slope: gelu's numbers from one exponential."""

import numpy as np
import pytest

from llmlab.ops import gelu, gelu_slope


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("C", [1, 7, 64])
def test_the_numbers_are_those_of_gelu(dtype, C):
    generator = np.random.default_rng(0)
    x, dy = (3 * generator.normal(size=(2, 5, C)).astype(dtype) for _ in range(2))
    bias = generator.normal(size=C).astype(dtype)
    y, slope = gelu_slope.forward(x, bias)
    # far to the left gelu has 0, and this 1e-37
    np.testing.assert_allclose(y, gelu.forward(x, bias), rtol=0, atol=1e-36)
    for got, expected in zip(gelu_slope.backward(dy, slope, bias), gelu.backward(dy, x, bias)):
        np.testing.assert_array_equal(got, expected)


def test_far_out():
    x = np.array([-1e4, -20, -9, 0, 9, 20, 1e4], np.float32)
    y, slope = gelu_slope.forward(x)
    np.testing.assert_allclose(y, [0, 0, 0, 0, 9, 20, 1e4], atol=1e-6)
    np.testing.assert_allclose(slope, [0, 0, 0, 0.5, 1, 1, 1], atol=1e-6)


def test_the_slope_may_replace_the_argument():
    x = np.linspace(-3, 3, 8, dtype=np.float32)
    y, slope = gelu_slope.forward(x.copy())
    own = x.copy()
    got_y, got_slope = gelu_slope.forward(own, slope=own)
    assert got_slope is own
    np.testing.assert_array_equal(own, slope)
    np.testing.assert_array_equal(got_y, y)


def test_gradients_of_a_bias_are_added():
    dbias = np.ones(2, np.float32)
    ones = np.ones((3, 2), np.float32)
    gelu_slope.backward(ones, ones, np.zeros(2, np.float32), dbias=dbias)
    assert dbias.tolist() == [4, 4]
    assert gelu_slope.backward(ones, ones)[1] is None
