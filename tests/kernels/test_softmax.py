"""Softmax: text, emulated kernels and CUDA kernels against the text in float64."""

import numpy as np
import pytest

from llmlab.kernels import softmax as launcher
from llmlab.ops import softmax

# Of the result: one rounding in the storage dtype, and the fast exponential's error.
TOLERANCE = {"float32": 4e-6, "bfloat16": 2**-8, "float16": 2**-10}

# A warp a row (whole packs, ragged, one column), a block a row, a long row.
SHAPES = [(1, 1), (3, 8), (2, 5, 77), (9, 256), (3, 511), (5, 1024), (3, 1025), (2, 2056), (2, 17000)]


def inputs(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x, dy = (3 * rng.standard_normal((2, *shape))).astype(dtype)
    return x, dy, softmax.forward.text(x.astype(np.float64)).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward(backend, dtype, shape):
    x, _, _ = inputs(shape, dtype)
    y = backend(softmax.forward, backend.array(x))
    assert y.dtype == dtype
    np.testing.assert_allclose(
        y.astype(np.float64), softmax.forward.text(x.astype(np.float64)),
        rtol=TOLERANCE[dtype.name], atol=2**-24 if dtype == np.float16 else 1e-30,
    )  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_backward(backend, dtype, shape):
    _, dy, y = inputs(shape, dtype)
    dx = backend(softmax.backward, backend.array(dy), backend.array(y))
    assert dx.dtype == dtype
    reference = softmax.backward.text(dy.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(
        dx.astype(np.float64), reference, rtol=0, atol=TOLERANCE[dtype.name] * np.abs(reference).max() + 2e-7
    )


@pytest.mark.parametrize("C", [48, 1500, 16500])
def test_rows_that_start_anywhere(backend, dtype, C):
    x, dy, y = inputs((4, C), dtype)
    at = backend.array
    got = backend(softmax.forward, at(x, 3), y=at(np.empty_like(x), 1))
    same = {"rtol": 2e-6 if dtype == np.float32 else TOLERANCE[dtype.name], "atol": 1e-7}
    np.testing.assert_allclose(got.astype(float), backend(softmax.forward, at(x)).astype(float), **same)
    got = backend(softmax.backward, at(dy, 1), at(y, 2), dx=at(np.empty_like(x), 3))
    np.testing.assert_allclose(
        got.astype(float), backend(softmax.backward, at(dy), at(y)).astype(float), **same
    )


@pytest.mark.parametrize("C", [100, 3001])
def test_a_shift_changes_nothing_and_rows_sum_to_one(backend, C):
    x = np.random.default_rng(0).integers(-9, 9, (3, C)).astype(np.float32)
    y = backend(softmax.forward, backend.array(x))
    np.testing.assert_array_equal(y, backend(softmax.forward, backend.array(x + 2**14)))
    np.testing.assert_allclose(y.sum(-1, dtype=np.float64), 1, rtol=2e-6)


@pytest.mark.parametrize("C", [6, 2100])
def test_masked_elements(backend, dtype, C):
    x = np.full((2, C), -np.inf, dtype)
    x[0, [1, C - 1]] = 0
    with np.errstate(invalid="ignore"):
        y = backend(softmax.forward, backend.array(x))
    assert y[0, [1, C - 1]].tolist() == [0.5, 0.5]
    assert not y[0, 2 : C - 1].any()
    assert np.isnan(y[1]).all()  # nothing to share among nothing, as in the formula


@pytest.mark.parametrize("C", [24, 1400])
def test_in_place(backend, dtype, C):
    x, dy, y = inputs((3, C), dtype)
    at = backend.array
    place = at(x)
    result = backend(softmax.forward, place, y=place)
    np.testing.assert_array_equal(result, backend(softmax.forward, at(x)))
    place = at(dy)
    result = backend(softmax.backward, place, at(y), dx=place)
    np.testing.assert_array_equal(result, backend(softmax.backward, at(dy), at(y)))


def test_rows_longer_than_shared_memory(backend, monkeypatch):
    monkeypatch.setattr("llmlab.kernels.row.shared_limit", lambda like, blocks=1: 4096 // blocks)
    monkeypatch.setattr("llmlab.kernels.softmax._MOST_THREADS", 32)
    x, dy, y = inputs((2, 1999), np.dtype(np.float32))
    result = backend(softmax.forward, backend.array(x))
    np.testing.assert_allclose(result, softmax.forward.text(x), rtol=4e-6, atol=0)
    result = backend(softmax.backward, backend.array(dy), backend.array(y))
    np.testing.assert_allclose(result, softmax.backward.text(dy, y), atol=1e-7)


def test_empty(backend, dtype):
    nothing = backend.array(np.empty((0, 8), dtype))
    assert backend(softmax.forward, nothing).shape == (0, 8)
    assert backend(softmax.backward, nothing, nothing).shape == (0, 8)


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(gpu_room):
    import cupy

    gpu_room(22)
    x = cupy.random.default_rng(0).standard_normal((43000 * 16, 50257 // 16), np.float32).astype(np.float16)
    x = x.ravel()[: 43000 * 50240].reshape(43000, 50240)
    y = softmax.forward(x)
    assert x.size > 2**31
    np.testing.assert_array_equal(y[-5:].get(), softmax.forward(x[-5:].copy()).get())


@pytest.mark.parametrize("C", [512, 3000, 10000], ids=["a warp a row", "a block a row", "a long row"])
def test_each_element_is_read_once_and_written_once(C, traffic):
    x, dy, y = inputs((3, C), np.dtype(np.float32))
    assert traffic(softmax.forward, x, y=y) == {"x": (1, 0), "y": (0, 1)}
    assert traffic(softmax.backward, dy, y, dx=np.empty_like(x)) == {"dy": (1, 0), "y": (1, 0), "dx": (0, 1)}


def test_rows_that_fill_a_multiprocessor_are_still_read_once(traffic):
    """Too long for two blocks to share one: 160 of its 227 KiB."""
    x = inputs((1, 40_000), np.dtype(np.float32))[0]
    assert traffic(softmax.forward, x, y=np.empty_like(x)) == {"x": (1, 0), "y": (0, 1)}
    _, dy, y = inputs((1, 20_000), np.dtype(np.float32))
    assert traffic(softmax.backward, dy, y, dx=np.empty_like(y)) == {"dy": (1, 0), "y": (1, 0), "dx": (0, 1)}


@pytest.mark.parametrize(("KiB", "kept"), [(50, 50), (113.5, 113.5), (226.75, 226.75), (227, 112.75)])
def test_what_a_block_keeps(KiB, kept):
    """A row whole, whether two blocks fit a multiprocessor or one; else what leaves room for two."""
    packs_of_a_KiB = 1024 // 16
    assert launcher._kept(int(KiB * packs_of_a_KiB), 1, np.empty(1)) == kept * packs_of_a_KiB
    assert launcher._kept(int(KiB * packs_of_a_KiB / 2), 2, np.empty(1)) == kept * packs_of_a_KiB / 2
