"""The linear layer: text, emulated bias kernels, cuBLAS, against the text in float64."""

import numpy as np
import pytest

from llmlab.kernels.column_sum import column_sum
from llmlab.ops import linear

TOLERANCE = {"float32": 2e-6, "bfloat16": 2**-7, "float16": 2**-10}  # product and bias are rounded apart
SUMS = 5e-6


def close(result, reference, tolerance):
    scale = np.abs(reference).max(initial=0) or 1.0
    np.testing.assert_allclose(np.asarray(result, np.float64), reference, rtol=0, atol=tolerance * scale)


def inputs(N, C, C_out, dtype):
    rng = np.random.default_rng(0)
    shapes = (N, C), (C_out, C), (C_out,), (N, C_out)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("N", "C", "C_out"), [(5, 8, 16), (33, 7, 5), (0, 4, 4), (40, 16, 24), (300, 24, 600)]
)
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_against_float64(backend, dtype, N, C, C_out, with_bias):
    x, weight, bias, dy = inputs(N, C, C_out, dtype)
    wide = [a.astype(np.float64) for a in (x, weight, bias, dy)]
    at = [backend.array(a) for a in (x, weight, bias, dy)]
    if not with_bias:
        at[2] = wide[2] = None
    close(backend(linear.forward, *at[:3]), linear.forward.text(*wide[:3]), TOLERANCE[dtype.name])
    dx, dweight, dbias = backend(linear.backward, at[3], *at[:3])
    dx_64, dweight_64, dbias_64 = linear.backward.text(wide[3], *wide[:3])
    close(dx, dx_64, TOLERANCE[dtype.name])
    close(dweight, dweight_64, SUMS)
    if with_bias:
        close(dbias, dbias_64, SUMS)
    else:
        assert dbias is None


# Off a boundary of any pack; on one of 8 elements, less than what cuBLAS likes best.
@pytest.mark.parametrize("offset", [1, 8])
def test_arrays_that_start_anywhere(backend, dtype, offset):
    x, weight, bias, dy = inputs(40, 16, 24, dtype)
    at = [backend.array(a, offset + i * (offset == 1)) for i, a in enumerate((x, weight, bias))]
    place = backend.array(np.empty_like(dy), offset)
    wide = [a.astype(np.float64) for a in (x, weight, bias, dy)]
    y = backend(linear.forward, *at, y=place)
    close(y, linear.forward.text(*wide[:3]), TOLERANCE[dtype.name])
    results = backend(linear.backward, backend.array(dy, offset), *at)
    expected = linear.backward.text(wide[3], *wide[:3])
    tolerances = TOLERANCE[dtype.name], SUMS, SUMS
    for result, reference, tolerance in zip(results, expected, tolerances, strict=True):
        close(result, reference, tolerance)


def test_gradients_of_parameters_add_up(backend, dtype):
    x, weight, bias, dy = inputs(12, 8, 16, dtype)
    at = [backend.array(a) for a in (dy, x, weight, bias)]
    once = backend(linear.backward, *at)
    given = {name: backend.array(a.copy()) for name, a in (("dweight", once[1]), ("dbias", once[2]))}
    twice = backend(linear.backward, *at, **given)
    for first, second in zip(once[1:], twice[1:]):
        np.testing.assert_allclose(second, 2 * first, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("C", [5, 64, 600])
def test_column_sums_neither_stick_nor_drop(backend, dtype, C):
    if backend.name == "numpy":
        pytest.skip("a launcher, not an op")
    x, total = backend.array(np.ones((3000, C), dtype)), backend.array(np.zeros(C, np.float32))
    for count in 1, 2:  # a bfloat16 sum would stick at 256, a float16 one at 2048
        backend(lambda: column_sum(total, x) or total)
        assert total.tolist() == [3000.0 * count] * C
