"""Embedding: text, emulated kernels and CUDA kernels against the text in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab import kernels
from llmlab.ops import embedding

TOLERANCE = {"float32": 1e-6, "bfloat16": 2**-8, "float16": 2**-11}


def close(result, reference, tolerance):
    scale = np.abs(reference).max(initial=0) or 1.0
    np.testing.assert_allclose(np.asarray(result, np.float64), reference, rtol=0, atol=tolerance * scale)


def check(backend, dtype, B, T, V, C, offset=0):
    rng = np.random.default_rng(0)
    wte, wpe, dx = (rng.standard_normal(s).astype(dtype) for s in ((V, C), (T + 2, C), (B, T, C)))
    tokens = rng.integers(0, V, (B, T))
    tokens[:, 3 : T // 2] = V - 1  # a run that spans chunks
    at = backend.array
    wide = [a.astype(np.float64) for a in (wte, wpe, dx)]
    x = backend(embedding.forward, at(tokens), at(wte, offset), at(wpe))
    close(x, embedding.forward.text(tokens, *wide[:2]), TOLERANCE[dtype.name])
    dwte, dwpe = at(np.ones((V, C), np.float32)), at(np.ones((T + 2, C), np.float32))
    results = backend(embedding.backward, at(dx, offset), at(tokens), at(wte), at(wpe), dwte=dwte, dwpe=dwpe)
    for result, reference in zip(results, embedding.backward.text(wide[2], tokens, *wide[:2])):
        close(result, 1 + reference, 2e-6)  # added to what the buffers held


@pytest.mark.parametrize(
    ("B", "T", "V", "C"), [(2, 5, 7, 5), (3, 40, 9, 64), (1, 200, 3, 24), (2, 33, 1500, 16)]
)
def test_against_float64(backend, dtype, B, T, V, C):
    check(backend, dtype, B, T, V, C)


@settings(max_examples=6, derandomize=True)
@given(
    B=st.integers(0, 4),
    T=st.integers(1, 50),
    V=st.integers(1, 60),
    C=st.integers(1, 40),
    offset=st.integers(0, 2),
)
def test_any_shape_anywhere(backend, dtype, B, T, V, C, offset):
    check(backend, dtype, B, T, V, C, offset)


@pytest.mark.parametrize("offsets", [(1, 0), (0, 1), (2, 0), (0, 2)])
def test_gradients_that_start_anywhere(backend, dtype, offsets):
    rng = np.random.default_rng(0)
    tokens, dx = rng.integers(0, 4, (2, 40)), rng.standard_normal((2, 40, 16)).astype(dtype)
    tables = np.zeros((4, 16), dtype), np.zeros((40, 16), dtype)
    sums = [np.ones(table.shape, np.float32) for table in tables]
    at = backend.array
    arguments = [at(a) for a in (dx, tokens, *tables)]
    expected = backend(embedding.backward, *arguments, dwte=at(sums[0]), dwpe=at(sums[1]))
    dwte, dwpe = (at(a, offset) for a, offset in zip(sums, offsets))
    for result, reference in zip(backend(embedding.backward, *arguments, dwte=dwte, dwpe=dwpe), expected):
        np.testing.assert_array_equal(result, reference)


def test_repeated_tokens_add_up(backend, dtype):
    tokens, dx = np.full((1, 1000), 3), np.ones((1, 1000, 5), dtype)
    wte, wpe = np.zeros((8, 5), dtype), np.zeros((1000, 5), dtype)
    dwte, dwpe = backend(embedding.backward, *map(backend.array, (dx, tokens, wte, wpe)))
    assert dwte[3].tolist() == [1000.0] * 5
    assert not np.delete(dwte, 3, 0).any()
    assert (dwpe == 1).all()


def test_same_input_same_bits(backend):
    rng = np.random.default_rng(0)
    tokens, dx = rng.integers(0, 5, (2, 300)), rng.standard_normal((2, 300, 8)).astype(np.float32)
    tables = np.zeros((5, 8), np.float32), np.zeros((300, 8), np.float32)
    runs = [backend(embedding.backward, *map(backend.array, (dx, tokens, *tables))) for _ in range(2)]
    for first, second in zip(*runs):
        np.testing.assert_array_equal(first, second)


def test_a_token_outside_the_vocabulary_is_never_another_row():
    """On a host it is refused (tests/ops); a kernel, which cannot raise, gives NaN, and adds nothing."""
    from llmlab.kernels import embedding as launcher

    tokens, wte, wpe = np.array([[0, 4, -1]]), np.ones((4, 8), np.float32), np.ones((3, 8), np.float32)
    with kernels.emulated("check"):
        x = launcher.forward(tokens, wte, wpe)
        dwte, _ = launcher.backward(np.ones((1, 3, 8), np.float32), tokens, wte, wpe)
    np.testing.assert_array_equal(np.isnan(x[0, :, 0]), [False, True, True])
    np.testing.assert_array_equal(dwte[:, 0], [1, 0, 0, 0])


def test_places_of_a_token_are_put_in_order_whatever_the_order_of_their_arrival():
    """On a GPU that order is left to chance, emulated it is always the same: here it is drawn."""
    rng, V = np.random.default_rng(0), 9
    tokens = rng.permutation(np.repeat([0, 3, 8, -1, 9], [1, 2, 150, 40, 7]))  # the last two outside
    known = np.where((tokens >= 0) & (tokens < V), tokens, V)
    counts = np.bincount(known, minlength=V + 1).astype(np.int32)
    starts = (np.cumsum(counts) - counts).astype(np.int32)
    arrived = rng.permutation(tokens.size)
    gathered = arrived[np.argsort(known[arrived], kind="stable")].astype(np.int32)
    keys = np.zeros(tokens.size, np.int64)
    order = kernels.load("embedding").get_function("order_places<long long>")
    with kernels.emulated("check"):
        order((25,), (256,), (kernels.Out(keys), gathered, starts, counts, tokens, tokens.size, V))
    np.testing.assert_array_equal(keys, np.sort(known << 32 | np.arange(tokens.size)))


@pytest.mark.gpu
def test_more_than_two_billion_elements(gpu_room):
    import cupy as cp

    gpu_room(8)
    B, T, V, C = 2_750, 1_024, 16, 768
    tokens = (cp.arange(B * T).reshape(B, T) % V).astype(np.int32)
    wte = cp.random.standard_normal((V, C), dtype=np.float32).astype(np.float16)
    wpe = cp.zeros((T, C), np.float16)
    x = embedding.forward(tokens, wte, wpe)
    assert (x[-1] == wte[tokens[-1]]).all()
    x[...] = 1
    dwte, dwpe = embedding.backward(x, tokens, wte, wpe)
    assert (dwte == B * T // V).all()
    assert (dwpe == B).all()
