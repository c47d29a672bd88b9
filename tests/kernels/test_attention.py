"""Attention: text, emulated kernels, CUDA kernels and cuDNN against the text in float64."""

import ml_dtypes
import numpy as np
import pytest

from llmlab.kernels import attention as launcher
from llmlab.kernels import attention_cudnn
from llmlab.ops import attention

BF16, FP16, FP32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)

# Of the largest value. In 16 bits p and ds are rounded before their products, as in every flash kernel.
TOLERANCE = {FP32: 4e-6, BF16: 2**-6.5, FP16: 2**-9.5}

LENGTHS = (1, 2, 31, 33, 63, 65, 127, 129)  # one token; one and several tiles of rows, whole and ragged
SIZES = (8, 16, 40, 64, 80, 96, 104, 128)  # whole depths of an mma, and not

# Where, by which implementation, in which dtype. For the CPU each takes seconds to compile: a few do.
CASES = [
    *(("numpy", "auto", dtype) for dtype in (BF16, FP16, FP32)),
    *(("emulated", *each) for each in (("wgmma", BF16), ("wgmma", FP16), ("mma", BF16), ("scalar", FP32))),
    *(("cuda", name, dtype) for name in ("wgmma", "mma", "cudnn") for dtype in (BF16, FP16)),
    *(("cuda", "scalar", dtype) for dtype in (BF16, FP16, FP32)),
]


@pytest.fixture(
    params=[pytest.param(case, marks=pytest.mark.gpu if case[0] == "cuda" else ()) for case in CASES],
    ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}",
)
def case(request):
    where, implementation, _ = request.param
    if where == "cuda" and implementation == "wgmma" and launcher._capability(0) != 90:
        pytest.skip("wgmma needs compute capability 9.0")
    if implementation == "cudnn" and not attention_cudnn.available():
        pytest.skip("no nvidia-cudnn-frontend")
    launcher.use(implementation)
    yield request.param
    launcher.use("auto")


@pytest.fixture
def backend(case, backend_named):
    return backend_named(case[0])


@pytest.fixture
def dtype(case):
    return case[2]


def inputs(B, T, H, D, dtype, seed=0):
    rng = np.random.default_rng(seed)
    qkv = rng.standard_normal((B, T, 3 * H * D)).astype(dtype)
    return qkv, rng.standard_normal((B, T, H * D)).astype(dtype)


def run(backend, qkv, dy, heads, at=None):
    """y, lse and dqkv as host arrays."""
    at = at or backend.array
    y, lse = backend(attention.forward, at(qkv), heads)
    dqkv = backend(attention.backward, at(dy), at(qkv), at(y), backend.array(lse), heads)
    return y, lse, dqkv


def reference(qkv, dy, heads):
    qkv, dy = qkv.astype(np.float64), dy.astype(np.float64)
    y, lse = attention.forward.text(qkv, heads)
    return y, lse, attention.backward.text(dy, qkv, y, lse, heads)


def assert_close(results, references, dtype):
    y, lse, dqkv = results
    assert (y.dtype, lse.dtype, dqkv.dtype) == (dtype, np.float32, dtype)
    np.testing.assert_allclose(lse, references[1], rtol=2e-6, atol=2e-6)
    C = y.shape[-1]
    thirds = [(dqkv[..., i * C : (i + 1) * C], references[2][..., i * C : (i + 1) * C]) for i in range(3)]
    for result, expected in [(y, references[0]), *thirds]:
        limit = TOLERANCE[dtype] * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(result.astype(np.float64), expected, rtol=0, atol=limit)


def check_shape(backend, B, T, H, D, dtype):
    qkv, dy = inputs(B, T, H, D, dtype)
    assert_close(run(backend, qkv, dy, H), reference(qkv, dy, H), dtype)


@pytest.mark.parametrize("T", LENGTHS)
def test_every_length(case, backend, dtype, T):
    if case[1] == "cudnn" and T == 1:
        pytest.skip("cuDNN has no kernel for one token, and says so")
    check_shape(backend, 2, T, 3, 40, dtype)


# Each size is compiled by itself, which takes seconds on a CPU: where the text is the same, a few of them do.
FEW_SIZES = {
    ("emulated", "wgmma"): (104,),
    ("emulated", "mma"): (64,),
    ("emulated", "scalar"): (),
    ("cuda", "mma"): (16, 80, 128),
    ("cuda", "scalar"): (64,),
}


@pytest.mark.parametrize("D", SIZES)
def test_every_head_size(case, backend, dtype, D):
    if D not in FEW_SIZES.get(case[:2], SIZES) or dtype == FP16:
        pytest.skip("another size or dtype of this implementation is tested")
    check_shape(backend, 1, 70, 2, D, dtype)


@pytest.mark.parametrize("D", [1, 7, 130, 257])
def test_head_sizes_that_no_tensor_core_takes(case, backend, dtype, D):
    few = backend.name == "emulated" and D not in (7, 257)
    if case[1] not in ("auto", "scalar") or few or (backend.name == "cuda" and dtype != BF16):
        pytest.skip("another size, dtype or implementation is tested")
    launcher.use("own")
    check_shape(backend, 1, 19, 2, D, dtype)


def test_no_head_sees_another(backend, dtype):
    """NaN in every head but one: its numbers are those of a run where the others are 0, bit for bit."""
    B, T, H, D, b, h = 2, 70, 3, 40, 0, 1
    qkv, dy = inputs(B, T, H, D, dtype)

    def alone(array, other):
        filled = np.full_like(array, other)
        heads, source = (x.reshape(B, T, -1, H, D) for x in (filled, array))
        heads[b, :, :, h] = source[b, :, :, h]
        return filled

    def mine(y, lse, dqkv):
        return y.reshape(B, T, H, D)[b, :, h], lse[b, h], dqkv.reshape(B, T, 3, H, D)[b, :, :, h]

    zeros, nans = (run(backend, alone(qkv, other), alone(dy, other), H) for other in (0, np.nan))
    for expected, result in zip(mine(*zeros), mine(*nans), strict=True):
        assert np.isfinite(result.astype(np.float32)).all()
        np.testing.assert_array_equal(result, expected)


def test_no_token_sees_a_later_one(backend, dtype):
    T, H, D, cut = 70, 2, 40, 37
    qkv, dy = inputs(1, T, H, D, dtype)
    changed = qkv.copy()
    changed[:, cut:] *= dtype.type(-3)
    y, lse, _ = run(backend, qkv, dy, H)
    y_changed, lse_changed, _ = run(backend, changed, dy, H)
    np.testing.assert_array_equal(y[:, :cut], y_changed[:, :cut])
    np.testing.assert_array_equal(lse[:, :, :cut], lse_changed[:, :, :cut])
    assert (y[:, cut:] != y_changed[:, cut:]).any()


def test_same_input_same_bits(backend, dtype):
    qkv, dy = inputs(1, 70, 2, 40, dtype)
    for first, second in zip(run(backend, qkv, dy, 2), run(backend, qkv, dy, 2), strict=True):
        np.testing.assert_array_equal(first, second)


def test_large_scores(backend, dtype):
    """Scores of some thousands, where exp overflows: a row then attends to its largest score alone."""
    qkv, dy = inputs(1, 40, 1, 40, dtype)
    qkv[..., :80] *= dtype.type(32)
    y, lse, dqkv = run(backend, qkv, dy, 1)
    expected = reference(qkv, dy, 1)
    assert np.abs(expected[1]).max() > 1000
    np.testing.assert_allclose(lse, expected[1], rtol=2e-6)
    np.testing.assert_allclose(y.astype(np.float64), expected[0], atol=TOLERANCE[dtype] * 4)
    assert np.isfinite(dqkv.astype(np.float32)).all()


@pytest.mark.parametrize("offset", [1, 4])
def test_arrays_that_start_anywhere(case, backend, dtype, offset):
    if backend.name == "emulated" and case[1] != "scalar":
        pytest.skip("one implementation takes these")
    launcher.use("own")
    qkv, dy = inputs(2, 17, 2, 40, dtype)
    results = run(backend, qkv, dy, 2, at=lambda x: backend.array(x, offset))
    assert_close(results, reference(qkv, dy, 2), dtype)


def test_views_are_read_as_they_look(backend, dtype):
    qkv, dy = inputs(4, 9, 2, 40, dtype)
    expected = run(backend, np.ascontiguousarray(qkv[::-2]), np.ascontiguousarray(dy[::-2]), 2)
    y, lse = backend(attention.forward, backend.array(qkv)[::-2], 2)
    dqkv = backend(
        attention.backward,
        backend.array(dy)[::-2],
        backend.array(qkv)[::-2],
        *map(backend.array, (y, lse)),
        2,
    )
    for result, other in zip((y, lse, dqkv), expected, strict=True):
        np.testing.assert_array_equal(result, other)


@pytest.mark.parametrize(("B", "T"), [(0, 5), (2, 0)])
def test_empty(backend, dtype, B, T):
    qkv, dy = inputs(B, T, 2, 8, dtype)
    y, lse, dqkv = run(backend, qkv, dy, 2)
    assert (y.shape, lse.shape, dqkv.shape) == ((B, T, 16), (B, 2, T), (B, T, 48))


def test_error_is_at_most_twice_that_of_torch(backend, dtype):
    torch = pytest.importorskip("torch")
    if backend.name == "cuda" and not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    H, D = 2, 40
    qkv, dy = inputs(2, 130, H, D, dtype, seed=1)
    expected = reference(qkv, dy, H)
    device = "cuda" if backend.name == "cuda" else "cpu"

    def tensor(x):
        return torch.from_numpy(x.astype(np.float32)).to(device, getattr(torch, dtype.name))

    packed = tensor(qkv).requires_grad_()
    q, k, v = (x.unflatten(-1, (H, D)).transpose(1, 2) for x in packed.chunk(3, -1))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    y.backward(tensor(dy))
    theirs = y.detach().float().cpu().numpy(), packed.grad.float().cpu().numpy()
    y, _, dqkv = run(backend, qkv, dy, H)
    for result, their, truth in zip((y, dqkv), theirs, (expected[0], expected[2]), strict=True):
        error, their_error = (np.sqrt(np.mean((x.astype(np.float64) - truth) ** 2)) for x in (result, their))
        assert error <= 2 * their_error


@pytest.mark.gpu
def test_long_sequences(backend, dtype):
    """Eight tiles and more a head, against the text in float64 on the GPU."""
    if backend.name != "cuda":
        pytest.skip("too long for a CPU")
    import cupy

    H, D = 2, 64
    qkv, dy = inputs(2, 1024, H, D, dtype)
    wide = [cupy.asarray(x.astype(np.float64)) for x in (qkv, dy)]
    y, lse = attention.forward.text(wide[0], H)
    dqkv = attention.backward.text(wide[1], wide[0], y, lse, H)
    assert_close(run(backend, qkv, dy, H), [x.get() for x in (y, lse, dqkv)], dtype)


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(case, backend, dtype, request):
    """The last sequence of a huge batch gives the bits that it gives alone."""
    if backend.name != "cuda" or dtype == FP32:
        pytest.skip("too large")
    import cupy

    request.getfixturevalue("gpu_room")(40)
    T, H, D = 64, 12, 64
    B = 2**31 // (T * H * D) + 2
    qkv, dy = (cupy.asarray(x) for x in inputs(1, T, H, D, dtype))
    many_qkv, many_dy = (cupy.zeros((B, *x.shape[1:]), dtype) for x in (qkv, dy))
    many_qkv[-1], many_dy[-1] = qkv[0], dy[0]
    assert many_dy.size > 2**31
    if case[1] == "cudnn":
        with pytest.raises(ValueError, match="wrong gradients"):
            attention.forward(many_qkv, H)
        return

    def run_both(qkv, dy):
        y, lse = attention.forward(qkv, H)
        return y, lse, attention.backward(dy, qkv, y, lse, H)

    for alone, last in zip(run_both(qkv, dy), run_both(many_qkv, many_dy), strict=True):
        cupy.testing.assert_array_equal(alone[0].astype(np.float32), last[-1].astype(np.float32))


def test_choice():
    """By what an implementation takes; a name that cannot do it is refused, never replaced."""
    wide, half, odd = (np.zeros((1, 4, 6 * D), dtype) for D, dtype in ((64, FP32), (64, BF16), (7, BF16)))
    assert [launcher.chosen(x, 2) for x in (wide, half, odd)] == ["scalar", "wgmma", "scalar"]
    assert launcher.chosen(np.zeros((1, 4, 6 * 257), FP32), 2) == "text"
    launcher.use("mma")
    try:
        assert launcher.chosen(half, 2) == "mma"
        with pytest.raises(ValueError, match='attention by "mma": qkv is float32'):
            launcher.chosen(wide, 2)
        with pytest.raises(ValueError, match="heads of 7 numbers"):
            launcher.chosen(odd, 2)
    finally:
        launcher.use("auto")


def test_refusals():
    qkv, dy = inputs(1, 4, 2, 8, FP32)
    with pytest.raises(ValueError, match="implementation is 'triton'"):
        launcher.use("triton")
    y, lse = attention.forward.text(qkv, 2)
    with pytest.raises(ValueError, match="dqkv is qkv itself"):
        launcher.backward(dy, qkv, y, lse, 2, dqkv=qkv)
