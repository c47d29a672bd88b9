"""The fused residual and LayerNorm: equal to its parts, with and without what is optional."""

import numpy as np
import pytest

from llmlab.arrays import bfloat16, float32, float64
from llmlab.ops import layernorm, residual, residual_layernorm


@pytest.mark.parametrize("dtype", [float64, float32, bfloat16], ids=lambda d: d.name)
def test_equals_its_parts(dtype):
    generator = np.random.default_rng(0)
    x, branch, dr, dy = generator.standard_normal((4, 3, 8)).astype(dtype)
    weight, bias = generator.standard_normal((2, 8)).astype(dtype)
    r, y, mean, rstd = residual_layernorm.forward(x, branch, weight, bias)
    np.testing.assert_array_equal(r, residual.forward(x, branch))
    for got, expected in zip((y, mean, rstd), layernorm.forward(r, weight, bias)):
        np.testing.assert_array_equal(got, expected)

    dx, dbranch, dweight, dbias, dbranch_bias = residual_layernorm.backward(None, dy, r, weight, mean, rstd)
    assert dx is dbranch
    assert dbranch_bias is None
    for got, expected in zip((dx, dweight, dbias), layernorm.backward(dy, r, weight, mean, rstd)):
        np.testing.assert_array_equal(got, expected)

    dx, *_ = residual_layernorm.backward(dr, dy, r, weight, mean, rstd)
    assert dx.dtype == dtype
    if dtype != bfloat16:  # there the sum is rounded once, not twice
        dnorm = layernorm.backward(dy, r, weight, mean, rstd)[0]
        np.testing.assert_array_equal(dx, residual.forward(dr, dnorm))


def test_given_buffers_may_differ():
    generator = np.random.default_rng(0)
    dr, dy, r = generator.standard_normal((3, 5, 8))
    weight = np.ones(8)
    _, mean, rstd = layernorm.forward(r, weight, weight)
    expected = residual_layernorm.backward(dr, dy, r, weight, mean, rstd)[0]
    buffers = {"dx": np.empty((5, 8)), "dbranch": np.empty((5, 8))}
    for given in ({"dx"}, {"dbranch"}, {"dx", "dbranch"}):
        results = residual_layernorm.backward(dr, dy, r, weight, mean, rstd, **{n: buffers[n] for n in given})
        for name, got in zip(("dx", "dbranch"), results):
            np.testing.assert_array_equal(got, expected)
            assert name not in given or got is buffers[name]
