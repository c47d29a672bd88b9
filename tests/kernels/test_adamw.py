"""AdamW's kernels on flat buffers: text, emulated and CUDA against the text in float64."""

import numpy as np
import pytest

from llmlab import kernels
from llmlab.arrays import to_numpy
from llmlab.optim import adamw

BETAS = 0.9, 0.95


def buffers(n, seed=0):
    rng = np.random.default_rng(seed)
    master, grad, m = rng.standard_normal((3, n)).astype(np.float32)
    return master, grad, m, m * m


def step(
    backend,
    arrays,
    compute=None,
    inverse_scale=1.0,
    lr=0.01,
    clip=1.0,
    decay_end=0,
    updates=0,
    eps=1e-8,
    decay=0.1,
):
    """One step on the backend; returns the norm, the buffers after it, and the count of updates."""
    counter = backend.array(np.array([updates]))
    norm = backend(
        adamw.step, *arrays, compute, counter, lr, inverse_scale, *BETAS, eps, decay, clip, decay_end
    )
    return norm[0], [to_numpy(a).copy() for a in arrays], int(counter[0])


@pytest.mark.parametrize(("n", "decay_end"), [(1, 1), (3, 0), (64, 64), (1003, 501), (70001, 70001)])
@pytest.mark.parametrize("offset", [0, 1])
def test_against_float64(backend, dtype, n, decay_end, offset):
    arrays = buffers(n)
    at = [backend.array(a, offset) for a in arrays]
    compute = backend.array(np.zeros(n, dtype), offset)
    norm, after, updates = step(backend, at, compute, 0.5, decay_end=decay_end, updates=3)
    wide = [a.astype(np.float64) for a in arrays]
    counter = np.array([3])
    norm_64 = adamw.step.text(*wide, None, counter, 0.01, 0.5, *BETAS, 1e-8, 0.1, 1.0, decay_end)
    assert updates == counter[0] == 4
    np.testing.assert_allclose(norm, norm_64[0], rtol=1e-6)
    for result, reference in zip(after, wide):
        np.testing.assert_allclose(result, reference, rtol=0, atol=1e-6 * np.abs(reference).max())
    np.testing.assert_array_equal(to_numpy(compute), after[0].astype(dtype))


def test_golden_trajectory(backend):
    arrays = [backend.array(np.array([x], np.float32)) for x in (1, 0, 0, 0)]
    for t, (gradient, expected) in enumerate(
        zip([0.5, -0.25, 0.0], [0.9890000002, 0.9853476299, 0.9823034893])
    ):
        arrays[1][...] = gradient
        counter = backend.array(np.array([t]))
        backend(adamw.step, *arrays, None, counter, 0.01, 1.0, 0.9, 0.999, 1e-8, 0.1, np.inf, 1)
        np.testing.assert_allclose(to_numpy(arrays[0]), expected, rtol=2e-7)


@pytest.mark.parametrize(
    ("gradient", "inverse_scale", "norm"),
    [
        ([3, 4], 1.0, 5.0),
        ([3 * 65536, 4 * 65536], 1 / 65536, 5.0),  # clipped after it was unscaled
        ([1e20, 1e20], 1.0, np.sqrt(2) * 1e20),  # whose squares no float32 holds
        ([1e-30, 0], 1.0, 1e-30),
        ([0, 0], 1.0, 0.0),
        ([1, np.inf], 1.0, np.inf),
        ([1, np.nan], 1.0, np.nan),
        ([], 1.0, 0.0),
    ],
)
def test_norm(backend, gradient, inverse_scale, norm):
    arrays = [backend.array(np.array(gradient, np.float32)) for _ in range(4)]
    result, _, updates = step(backend, arrays, inverse_scale=inverse_scale)
    np.testing.assert_allclose(result, norm, rtol=1e-6)
    assert updates == np.isfinite(norm)


@pytest.mark.parametrize("blocks", [1, 33, 300])
def test_norm_of_many_blocks(backend, monkeypatch, blocks):
    """More partial sums than a warp adds up at once, of threads that walk over the gradient."""
    monkeypatch.setattr("llmlab.kernels.adamw._NORM_THREADS", 64)
    monkeypatch.setattr("llmlab.kernels.guards.multiprocessors", lambda like: blocks)
    arrays = buffers(78_001)
    norm, after, updates = step(backend, [backend.array(a) for a in arrays], updates=5, clip=0.1)
    wide, counter = [a.astype(np.float64) for a in arrays], np.array([5])
    norm_64 = adamw.step.text(*wide, None, counter, 0.01, 1.0, *BETAS, 1e-8, 0.1, 0.1, 0)
    np.testing.assert_allclose(norm, norm_64[0], rtol=1e-7)
    np.testing.assert_allclose(after[0], wide[0], rtol=0, atol=1e-6)
    assert updates == counter[0]


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_gradient_that_is_not_finite_changes_nothing(backend, bad):
    arrays = buffers(100)
    arrays[1][50] = bad
    compute = backend.array(np.full(100, 7, np.float16))
    _, after, updates = step(backend, [backend.array(a) for a in arrays], compute)
    assert updates == 0
    for result, before in zip(after, arrays):
        np.testing.assert_array_equal(result, before)
    assert (to_numpy(compute) == 7).all()


def test_scalars_may_lie_on_the_device(backend):
    runs = []
    for lr, scale in (0.01, 0.5), (backend.array(np.float32([0.01])), backend.array(np.float32([0.5]))):
        arrays = [backend.array(a) for a in buffers(33)]
        runs.append(step(backend, arrays, lr=lr, inverse_scale=scale)[1])
    for first, second in zip(*runs):
        np.testing.assert_array_equal(first, second)


def test_numbers_of_any_width_launch_the_kernels():
    """float64 arrays run the text; a float64 number beside float32 arrays is a number."""
    updates, lr, inverse_scale = np.zeros(1, np.int64), np.float64(0.1), np.float64(1)
    with kernels.emulated("profile") as profiles:
        adamw.step(*buffers(5), None, updates, lr, inverse_scale, *BETAS, 1e-8, 0.1, 1.0, 5)
    assert len(profiles) == 2


def test_a_refused_step_is_not_counted(backend):
    arrays, counter = [backend.array(a) for a in buffers(9)], backend.array(np.array([7]))
    settings = None, counter, 0.01, 1.0, *BETAS, 1e-8, 0.1, 1.0, 9
    for gradient, count in ((1, 8), (np.inf, 8), (np.nan, 8), (1, 9)):
        arrays[1][...] = gradient
        backend(adamw.step, *arrays, *settings)
        assert int(counter[0]) == count


def test_a_short_gradient_is_not_touched_by_clipping(backend):
    runs = []
    for clip in 1.0, np.inf:
        arrays = [backend.array(np.float32(a)) for a in ([1, 1], [0.3, 0.4], [0, 0], [0, 0])]
        runs.append(step(backend, arrays, clip=clip)[1])
    for first, second in zip(*runs):
        np.testing.assert_array_equal(first, second)


def test_each_buffer_is_read_and_written_once(traffic):
    n = 1024
    arrays, compute, updates = buffers(n), np.zeros(n, np.float16), np.zeros(1, np.int64)
    moved = traffic(adamw.step, *arrays, compute, updates, 0.01, 1.0, *BETAS, 1e-8, 0.1, 1.0, n)
    assert moved["master"] == moved["m"] == moved["v"] == (1, 1)
    assert moved["compute"] == (0, 1)
    assert moved["grad"] == (2, 0)  # its norm must be known before the first element is updated


@pytest.mark.gpu
def test_more_than_two_billion_elements(gpu_room):
    import cupy as cp

    gpu_room(40)
    n = 2**31 + 1025
    master, grad, m, v = (cp.full(n, value, np.float32) for value in (1, 0.5, 0, 0))
    compute, counter = cp.zeros(n, np.float16), cp.zeros(1, np.int64)
    norm = adamw.step(master, grad, m, v, compute, counter, 0.01, 1.0, *BETAS, 1e-8, 0.1, np.inf, n)
    np.testing.assert_allclose(float(norm[0]), 0.5 * np.sqrt(n), rtol=1e-6)
    for buffer in master, m, v, compute:
        assert float(buffer[0]) != 1
        assert (buffer[-2000:] == buffer[0]).all()
