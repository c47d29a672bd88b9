"""Residual and LayerNorm in one pass: rows that start anywhere, and none. test_layernorm.py has the rest."""

import numpy as np
import pytest

from llmlab.ops import residual_layernorm

TOLERANCE = {"float32": 2e-6, "bfloat16": 2**-8, "float16": 2**-11}  # of the largest value
SUMS = 2e-6  # parameter gradients and statistics are float32 whatever the dtype


def inputs(N, C, dtype):
    """x, branch, dr, dy and weight, bias, branch_bias."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in [(N, C)] * 4 + [(C,)] * 3]


def close(result, reference):
    tolerance = TOLERANCE[result.dtype.name] if result.ndim == 2 else SUMS
    scale = max(1.0, np.abs(reference).max(initial=0))
    np.testing.assert_allclose(result.astype(np.float64), reference, rtol=0, atol=tolerance * scale)


# Every array a different number of elements past a boundary; all the same; packs of 16 bytes where possible.
@pytest.mark.parametrize("offsets", [(1, 2, 3, 0, 1, 2, 3), (1,) * 7, (8,) * 7], ids=str)
@pytest.mark.parametrize("C", [40, 77])
def test_arrays_that_start_anywhere(backend, dtype, C, offsets):
    arrays = inputs(9, C, dtype)
    x, branch, dr, dy, weight, bias, branch_bias = map(backend.array, arrays, offsets)
    r, y, mean, rstd = backend(residual_layernorm.forward, x, branch, weight, bias, branch_bias)
    x_64, branch_64, dr_64, dy_64, weight_64, bias_64, branch_bias_64 = (a.astype(np.float64) for a in arrays)
    close(r, x_64 + branch_64 + branch_bias_64)
    # LayerNorm reads the row as it was stored
    _, *expected = residual_layernorm.forward.text(
        r.astype(np.float64), np.zeros_like(x_64), weight_64, bias_64
    )
    for result, reference in zip((y, mean, rstd), expected, strict=True):
        close(result, reference)
    at_r = backend.array(r, offsets[0])
    results = backend(
        residual_layernorm.backward, dr, dy, at_r, weight, *map(backend.array, (mean, rstd)), branch_bias
    )
    of_rows = r.astype(np.float64), weight_64, *expected[1:], branch_bias_64
    for result, reference in zip(
        results, residual_layernorm.backward.text(dr_64, dy_64, *of_rows), strict=True
    ):
        close(result, reference)


def test_empty(backend, dtype):
    """No rows: nothing is launched, and gradients of parameters stay what they were."""
    x, branch, dr, dy, weight, bias, branch_bias = map(backend.array, inputs(0, 8, dtype))
    r, y, mean, rstd = backend(residual_layernorm.forward, x, branch, weight, bias, branch_bias)
    assert (r.shape, y.shape, mean.shape, rstd.shape) == ((0, 8), (0, 8), (0,), (0,))
    at_mean = backend.array(mean)
    names = "dweight", "dbias", "dbranch_bias"
    sums = {name: backend.array(np.full(8, 3, np.float32)) for name in names}
    dx, dbranch, *results = backend(
        residual_layernorm.backward, dr, dy, x, weight, at_mean, at_mean, branch_bias, **sums
    )
    assert dx.shape == dbranch.shape == (0, 8)
    for result in results:
        np.testing.assert_array_equal(result, np.full(8, 3))
