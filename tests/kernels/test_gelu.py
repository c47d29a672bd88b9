"""GELU with bias: text, emulated kernel and CUDA kernel against the text in float64."""

import numpy as np
import pytest

from llmlab.ops import gelu

# Of the largest value: one rounding in the storage dtype, and the fast exponential's error.
TOLERANCE = {"float32": 2e-6, "bfloat16": 2**-8, "float16": 2**-11}

# Rows of whole packs and not; one row, one column; more columns than a block is wide; many rows.
SHAPES = [(1, 1), (3, 8), (5, 77), (37, 64), (2, 3, 40), (130, 16), (2, 1100)]


def close(result, reference, dtype):
    assert result.dtype == dtype
    scale = max(1.0, np.abs(reference).max(initial=0))
    np.testing.assert_allclose(
        result.astype(np.float64), reference, rtol=0, atol=TOLERANCE[dtype.name] * scale
    )


def inputs(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x, dy = (3 * rng.standard_normal((2, *shape))).astype(dtype)
    bias = rng.standard_normal(shape[-1:]).astype(dtype)
    return x, dy, bias


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_forward(backend, dtype, shape, with_bias):
    x, _, bias = inputs(shape, dtype)
    bias = bias if with_bias else None
    y = backend(gelu.forward, backend.array(x), bias if bias is None else backend.array(bias))
    close(
        y, gelu.forward.text(x.astype(np.float64), bias if bias is None else bias.astype(np.float64)), dtype
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_backward(backend, dtype, shape, with_bias):
    x, dy, bias = inputs(shape, dtype)
    bias = bias if with_bias else None
    dx, dbias = backend(
        gelu.backward, backend.array(dy), backend.array(x), bias if bias is None else backend.array(bias)
    )
    wide = [None if a is None else a.astype(np.float64) for a in (dy, x, bias)]
    dx_64, dbias_64 = gelu.backward.text(*wide)
    close(dx, dx_64, dtype)
    if bias is None:
        assert dbias is None
    else:
        assert dbias.dtype == np.float32  # summed in float32 from values that were not yet rounded
        np.testing.assert_allclose(dbias, dbias_64, rtol=0, atol=1e-5 * max(1, np.abs(dbias_64).max()))


@pytest.mark.parametrize("offset", [1, 3])
def test_arrays_that_start_anywhere(backend, dtype, offset):
    x, dy, bias = inputs((9, 48), dtype)
    at = backend.array
    y = backend(gelu.forward, at(x, offset), at(bias, 2), y=at(np.empty_like(x)))
    np.testing.assert_array_equal(y, backend(gelu.forward, at(x), at(bias)))
    results = backend(gelu.backward, at(dy, offset), at(x), at(bias, 1), dx=at(np.empty_like(x), 5))
    for result, expected in zip(results, backend(gelu.backward, at(dy), at(x), at(bias))):
        np.testing.assert_allclose(
            result.astype(np.float32), expected.astype(np.float32), rtol=1e-6, atol=1e-6
        )


def test_dbias_adds_to_the_buffer_given(backend, dtype):
    dy, x, bias = np.ones((4096, 5), dtype), np.full((4096, 5), 20, dtype), np.zeros(5, dtype)
    dbias = backend.array(np.zeros(5, np.float32))
    for count in (
        1,
        2,
    ):  # at 20 the slope is 1, so a bfloat16 sum would stick at 256 and a float16 one at 2048
        backend(gelu.backward, backend.array(dy), backend.array(x), backend.array(bias), dbias=dbias)
        assert dbias.tolist() == [4096.0 * count] * 5


def test_in_place(backend, dtype):
    x, dy, bias = inputs((6, 24), dtype)
    at = backend.array
    x_place, dy_place = at(x), at(dy)
    dx = backend(gelu.backward, dy_place, x_place, at(bias), dx=dy_place)[0]
    np.testing.assert_array_equal(dx, backend(gelu.backward, at(dy), at(x), at(bias))[0])
    y = backend(gelu.forward, x_place, at(bias), y=x_place)
    np.testing.assert_array_equal(y, backend(gelu.forward, at(x), at(bias)))


def test_extremes(backend):
    x = np.array([[-np.inf, -1e4, -90, -0.0, 0.0, 90, 1e4, np.inf, np.nan]], np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        y = backend(gelu.forward, backend.array(x))[0]
    np.testing.assert_allclose(y[1:8], [0, 0, 0, 0, 90, 1e4, np.inf], atol=1e-30)
    assert np.isnan(y[[0, 8]]).all()  # -inf times 0, as in the formula


def test_empty(backend, dtype):
    x, dy, bias = inputs((0, 8), dtype)
    at = backend.array
    assert backend(gelu.forward, at(x), at(bias)).shape == (0, 8)
    dx, dbias = backend(gelu.backward, at(dy), at(x), at(bias))
    assert dx.shape == (0, 8)
    np.testing.assert_array_equal(dbias, np.zeros(8))


def test_views_are_read_as_they_look(backend, dtype):
    x, _, bias = inputs((10, 16), dtype)
    expected = backend(
        gelu.forward, backend.array(np.ascontiguousarray(x[::-1, ::2])), backend.array(bias[::2])
    )
    np.testing.assert_array_equal(
        backend(gelu.forward, backend.array(x)[::-1, ::2], backend.array(bias)[::2]), expected
    )


def test_same_input_same_bits(backend, dtype):
    x, dy, bias = inputs((333, 40), dtype)
    runs = [backend(gelu.backward, *map(backend.array, (dy, x, bias))) for _ in range(2)]
    for first, second in zip(*runs):
        np.testing.assert_array_equal(first, second)


def test_each_element_is_read_once_and_written_once(traffic):
    x, dy, bias = inputs((400, 64), np.dtype(np.float32))
    rows = 8 * 7  # of threads in a block, times blocks: each reads its part of bias once
    assert traffic(gelu.forward, x, bias) == {"x": (1, 0), "bias": (rows, 0), "y": (0, 1)}
    moved = traffic(gelu.backward, dy, x, bias)
    assert [moved[name] for name in ("dy", "x", "dx", "gradient_0")] == [(1, 0), (1, 0), (0, 1), (1, 1)]
