"""LayerNorm far from zero, and sums over many rows."""

import numpy as np
import pytest

from llmlab.arrays import bfloat16, float32, float64
from llmlab.ops import layernorm, residual_layernorm


@pytest.mark.parametrize(("mean", "tolerance"), [(0, 2e-3), (100, 2e-3), (1000, 2e-3), (10000, 2e-2)])
def test_a_large_common_offset_costs_no_digits(mean, tolerance):
    x = (mean + np.arange(16) * 1e-3).astype(float32)
    y, _, rstd = layernorm.forward(x, np.ones(16, float32), np.zeros(16, float32))
    exact, _, exact_rstd = layernorm.forward(x.astype(float64), np.ones(16), np.zeros(16))
    np.testing.assert_allclose(y, exact, atol=tolerance)
    np.testing.assert_allclose(rstd, exact_rstd, rtol=1e-4)
    first = {0: -1.3416, 100: -1.3415, 1000: -1.3415, 10000: -1.3313}[mean]
    np.testing.assert_allclose(y[0], first, atol=tolerance)
    np.testing.assert_allclose(exact[0], first, atol=1e-4)


@pytest.mark.parametrize("mean", [0, 1000, 10000])
def test_backward_sees_the_same_rows(mean):
    generator = np.random.default_rng(0)
    x = (mean + generator.standard_normal((4, 16))).astype(float32)
    dy = generator.standard_normal((4, 16)).astype(float32)
    weight = generator.standard_normal(16).astype(float32)
    results = []
    for dtype in (float32, float64):
        a, w = x.astype(dtype), weight.astype(dtype)
        _, m, rstd = layernorm.forward(a, w, np.zeros_like(w))
        results.append(layernorm.backward(dy.astype(dtype), a, w, m, rstd))
    for got, exact in zip(*results):
        np.testing.assert_allclose(got, exact, atol=1e-5)


def test_rows_around_2000_come_out_with_unit_deviation():
    x = (2000 + np.random.default_rng(0).standard_normal((5, 4))).astype(float32)
    y, _, _ = layernorm.forward(x, np.ones(4, float32), np.zeros(4, float32))
    np.testing.assert_allclose(y.std(-1), 1, atol=1e-2)


@pytest.mark.parametrize("C", [768, 1600, 1601])
def test_4096_rows_of_ones_add_up_in_every_column(C):
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4096, C)).astype(bfloat16)
    dy, weight = np.ones((4096, C), bfloat16), np.ones(C, bfloat16)
    _, mean, rstd = layernorm.forward(x, weight, weight)
    _, dweight, dbias = layernorm.backward(dy, x, weight, mean, rstd)
    xhat = (x.astype(float64) - mean[:, None]) * rstd[:, None]
    np.testing.assert_array_equal(dbias, 4096)
    np.testing.assert_allclose(dweight, xhat.sum(0), rtol=1e-2, atol=1e-2)
    layernorm.backward(dy, x, weight, mean, rstd, dweight=dweight, dbias=dbias)
    np.testing.assert_array_equal(dbias, 8192)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=lambda d: d.name)
def test_recompute_gives_the_same_bits(dtype):
    generator = np.random.default_rng(0)
    x, branch = generator.standard_normal((2, 3, 5, 40)).astype(dtype)
    weight, bias, branch_bias = generator.standard_normal((3, 40)).astype(dtype)
    y, mean, rstd = layernorm.forward(x, weight, bias)
    np.testing.assert_array_equal(layernorm.recompute(x, weight, bias, mean, rstd), y)
    r, y, mean, rstd = residual_layernorm.forward(x, branch, weight, bias, branch_bias)
    np.testing.assert_array_equal(residual_layernorm.recompute(r, weight, bias, mean, rstd), y)


def test_a_row_does_not_depend_on_its_neighbours():
    """Each row alone gives the bits it gives in a batch, as a checkpointed or split batch needs."""
    x = np.random.default_rng(0).standard_normal((7, 24)).astype(float32)
    x[3] = np.nan
    ones = np.ones(24, float32)
    y, _, _ = layernorm.forward(x, ones, ones)
    assert np.isfinite(y[[0, 1, 2, 4, 5, 6]]).all()


@pytest.mark.parametrize(("change", "message"), [
    ({"weight": np.ones(5)}, r"weight has shape \(5,\), needs \(C\) with C = 4 as in x"),
    ({"bias": np.ones((4, 1))}, r"bias has shape \(4, 1\), needs 1 axes \(C\)"),
    ({"eps": np.nan}, "eps is nan"),
    ({"eps": -1e-5}, "eps is -1e-05, needs to be at least 0"),
    ({"mean": np.empty(2)}, r"mean has shape \(2,\), needs \(\*N\) with \*N = \(3,\) as in x"),
    ({"x": np.ones((2, 5))}, "weight has shape"),
])
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        layernorm.forward(**{"x": np.ones((3, 4)), "weight": np.ones(4), "bias": np.ones(4), **change})


@pytest.mark.parametrize("eps", [1e-5, np.float64(1e-5), np.float32(1e-5), np.array(1e-5)], ids=repr)
def test_scalars_of_any_kind_promote_nothing(eps):
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(float32)
    ones = np.ones(4, float32)
    results = layernorm.forward(x, ones, ones, eps)
    assert {a.dtype for a in results} == {float32}
    np.testing.assert_allclose(results[0], layernorm.forward(x, ones, ones, 1e-5)[0], rtol=1e-6)
