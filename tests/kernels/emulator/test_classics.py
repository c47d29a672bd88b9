"""Classic kernels give NumPy's results in every mode, and raise no alarm in check mode."""

import ml_dtypes
import numpy as np
import pytest

from llmlab.kernels.emulator import Out

EXPRESSIONS = (
    *(f"block_sums<{step}>" for step in range(5)),
    "transpose_tiled<32, 8>",
    "matmul_tiled<float, 16>",
    "matmul_tiled<__nv_bfloat16, 8>",
    "matmul_tiled<__half, 8>",
)


@pytest.fixture(params=["fast", "check", "profile"])
def launch(request, compiled):
    return compiled("classics.cu", request.param, *EXPRESSIONS).launch


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("threads", [64, 256])
def test_block_sums(launch, rng, step, threads):
    x = floats(rng, 1000)
    blocks = -(-x.size // threads)
    sums = np.empty(blocks, np.float32)
    launch(f"block_sums<{step}>", blocks, threads, [Out(sums), x, x.size], shared_mem=4 * threads)
    np.testing.assert_allclose(sums.sum(), x.sum(), rtol=1e-5, atol=1e-5)


def test_sum_in_one_launch(launch, rng):
    x, partial, total = floats(rng, 3000), np.empty(7, np.float32), np.empty(1, np.float32)
    for _ in range(2):  # the counter of finished blocks must be back at zero
        launch("sum_in_one_launch", 7, 128, [Out(total), partial, x, x.size])
        np.testing.assert_allclose(total[0], x.sum(), rtol=1e-4)


def test_sum_by_atomics(launch, rng):
    x, total = floats(rng, 3000), np.zeros(1, np.float32)
    launch("sum_by_atomics", 5, 96, [total, x, x.size])
    np.testing.assert_allclose(total[0], x.sum(), rtol=1e-4)


def test_transpose(launch, rng):
    x = floats(rng, 45, 70)
    y = np.empty((70, 45), np.float32)
    launch("transpose_naive", (5, 3), (16, 16), [Out(y), x, 45, 70])
    assert (y == x.T).all()
    launch("transpose_tiled<32, 8>", (3, 2), (32, 8), [Out(y), x, 45, 70])
    assert (y == x.T).all()


@pytest.mark.parametrize("kernel", ["histogram_global", "histogram_shared"])
def test_histogram(launch, rng, kernel):
    x = rng.integers(0, 256, 2000).astype(np.uint8)
    counts = np.zeros(256, np.uint32)
    launch(kernel, 16, 128, [counts, x, x.size])
    assert (counts == np.bincount(x, minlength=256)).all()


@pytest.mark.parametrize(
    ("kernel", "threads", "bytes_each"),
    [("scan_hillis_steele", 128, 8), ("scan_blelloch", 64, 4), ("scan_by_warps", 128, 0)],
)
def test_prefix_sum(launch, rng, kernel, threads, bytes_each):
    x = rng.integers(-9, 9, 128).astype(np.int32)
    y = np.empty_like(x)
    launch(kernel, 1, threads, [Out(y), x, x.size], shared_mem=bytes_each * x.size)
    assert (y == np.cumsum(x) - x).all()


def test_compact_by_ballot(launch, rng):
    x, y, count = floats(rng, 500), np.zeros(500, np.float32), np.zeros(1, np.int32)
    launch("compact_by_ballot", 4, 128, [y, count, x, x.size])
    assert (np.sort(y[: count[0]]) == np.sort(x[x > 0])).all()


def test_stencil(launch, rng):
    x, y = floats(rng, 200), np.empty(200, np.float32)
    launch("stencil_1d", 4, 64, [Out(y), x, x.size])
    np.testing.assert_allclose(y, np.convolve(x, np.ones(7), "same"), rtol=1e-4, atol=1e-5)


def test_convolution_with_constants(launch, rng):
    x, y = floats(rng, 20, 33), np.empty((20, 33), np.float32)
    launch("convolve_2d", (3, 2), (16, 16), [Out(y), x, 20, 33])
    p = np.pad(x, 1)
    expected = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * x
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "tile", "dtype", "tolerance"),
    [
        ("matmul_naive", 16, np.float32, 1e-5),
        ("matmul_tiled<float, 16>", 16, np.float32, 1e-5),
        ("matmul_tiled<__nv_bfloat16, 8>", 8, ml_dtypes.bfloat16, 8e-3),
        ("matmul_tiled<__half, 8>", 8, np.float16, 1e-3),
    ],
)
def test_matmul(launch, rng, kernel, tile, dtype, tolerance):
    m, n, k = 21, 35, 18
    a, b, c = floats(rng, m, k).astype(dtype), floats(rng, k, n).astype(dtype), np.empty((m, n), dtype)
    launch(kernel, (-(-n // tile), -(-m // tile)), (tile, tile), [Out(c), a, b, m, n, k])
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c.astype(np.float64), expected, rtol=tolerance, atol=10 * tolerance)


def test_matmul_in_registers(launch, rng):
    a, b, c = floats(rng, 64, 64), floats(rng, 64, 64), np.empty((64, 64), np.float32)
    launch("matmul_in_registers", (1, 1), 256, [Out(c), a, b, 64])
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_bitonic_sort(launch, rng):
    x = floats(rng, 256)
    expected = np.sort(x)
    launch("bitonic_sort", 1, 256, [x, 256], shared_mem=1024)
    assert (x == expected).all()


def test_softmax_online(launch, rng):
    x, y = floats(rng, 3, 77), np.empty((3, 77), np.float32)
    launch("softmax_online", 3, 32, [Out(y), x, 77])
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
