"""Head and cross-entropy by chunks: text, emulated kernels and CUDA kernels, beside the ops one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab import kernels
from llmlab.ops import cross_entropy, linear, linear_cross_entropy

# Of the largest value, beyond twice the error of the ops one by one: sums in another order.
TOLERANCE = {"float32": 1e-6, "bfloat16": 2**-9, "float16": 2**-12}
SUMS = LOSS = 2e-6


def inputs(N, C, V, vocabulary, dtype, seed=0):
    """A weight with garbage in its padding, and targets of which the second is ignored."""
    rng = np.random.default_rng(seed)
    x, weight = rng.standard_normal((N, C)).astype(dtype), rng.standard_normal((V, C)).astype(dtype)
    weight[vocabulary:] = 5
    targets = rng.integers(0, vocabulary, N)
    targets[1:2] = -100
    return x, weight, targets


def apart(backend, x, weight, targets, dloss, **attributes):
    """Loss, dx and dweight by one op after the other."""
    at = backend.array
    logits = at(backend(linear.forward, at(x), at(weight)))
    loss, dlogits = backend(
        cross_entropy.forward_backward, logits, at(targets), dloss, **attributes, dlogits=logits
    )
    dx, dweight, _ = backend(linear.backward, at(dlogits), at(x), at(weight))
    return loss, dx, dweight


def every_way(backend, x, weight, targets, dloss, rows, offset, **attributes):
    """Loss, dx and dweight by `forward` and `backward`, and in one pass: dx beside x, and over it."""

    def at_offset():
        return backend.array(x, offset), backend.array(weight), backend.array(targets)

    def call(function, *args, **buffers):
        logits = backend.array(np.zeros((rows, len(weight)), x.dtype), offset)
        return backend(function, *args, **attributes, **buffers, logits=logits)

    loss, _ = call(linear_cross_entropy.forward, *at_offset())
    dx, dweight, _ = call(linear_cross_entropy.backward, dloss, *at_offset())
    yield loss, dx, dweight
    yield call(linear_cross_entropy.forward_backward, *at_offset(), dloss)[:3]
    place, *others = at_offset()
    yield call(linear_cross_entropy.forward_backward, place, *others, dloss, dx=place)[:3]


def assert_close(got, one_by_one, exact, dtype):
    """Loss, dx and dweight: at most twice the error of the ops one by one, and their tolerance beside."""
    tolerances = LOSS, TOLERANCE[dtype.name], SUMS
    for mine, theirs, right, tolerance in zip(got, one_by_one, exact, tolerances, strict=True):
        scale = np.abs(right).max(initial=0) or 1.0
        error, allowed = (np.abs(np.asarray(a, np.float64) - right).max(initial=0) for a in (mine, theirs))
        assert error <= 2 * allowed + tolerance * scale


def check(backend, dtype, N, C, V, vocabulary, rows, reduction="mean", offset=0):
    x, weight, targets = inputs(N, C, V, vocabulary, dtype)
    attributes = {"vocabulary": vocabulary, "reduction": reduction}
    factor = np.linspace(-1, 2, N).astype(np.float32) if reduction == "none" else 0.5
    wide = x.astype(np.float64), weight.astype(np.float64)
    exact = linear_cross_entropy.forward_backward.text(*wide, targets, factor, **attributes)[:3]

    dloss = backend.array(factor) if reduction == "none" else factor
    one_by_one = apart(backend, x, weight, targets, dloss, **attributes)
    ways = list(every_way(backend, x, weight, targets, dloss, rows, offset, **attributes))
    for got in ways:
        assert_close(got, one_by_one, exact, dtype)
        _, dx, dweight = got
        assert not dx[1:2].any()
        assert not dweight[vocabulary:].any()
        np.testing.assert_array_equal(dx, ways[0][1])
        np.testing.assert_array_equal(dweight, ways[0][2])


@pytest.mark.parametrize("rows", [1, 4, 5, 12, 17])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_against_float64(backend, dtype, rows, reduction):
    check(backend, dtype, 12, 16, 64, 57, rows, reduction)


@pytest.mark.parametrize(("V", "vocabulary"), [(50, 50), (11, 7), (1024, 1000), (4099, 4099)])
def test_whole_packs_and_not_with_padding_and_without(backend, dtype, V, vocabulary):
    check(backend, dtype, 7, 24, V, vocabulary, 3)


@settings(max_examples=5, derandomize=True)
@given(
    N=st.integers(0, 9),
    C=st.integers(1, 20),
    V=st.integers(1, 90),
    padding=st.integers(0, 9),
    rows=st.integers(1, 12),
    offset=st.integers(0, 3),
)
def test_any_shape_anywhere(backend, dtype, N, C, V, padding, rows, offset):
    check(backend, dtype, N, C, V + padding, V, rows, offset=offset)


@pytest.mark.parametrize("integer", [np.int16, np.int32, np.int64])
def test_targets_of_any_integers_with_leading_axes(backend, integer):
    x, weight, targets = inputs(12, 8, 32, 32, np.dtype(np.float32))
    at = backend.array
    expected = backend(linear_cross_entropy.forward_backward, at(x), at(weight), at(targets))
    got = backend(
        linear_cross_entropy.forward_backward,
        at(x.reshape(3, 4, 8)),
        at(weight),
        at(targets.astype(integer).reshape(3, 4)),
        logits=at(np.zeros((5, 32), np.float32)),
    )
    assert got[1].shape == (3, 4, 8)
    for value, right in zip(got[:3], expected, strict=False):
        np.testing.assert_allclose(value.reshape(right.shape), right, rtol=1e-5, atol=1e-6)


def test_gradients_of_the_weight_add_up(backend, dtype):
    x, weight, targets = inputs(12, 8, 32, 32, dtype)
    at = backend.array
    _, _, once, _ = backend(linear_cross_entropy.forward_backward, at(x), at(weight), at(targets))
    _, _, twice, _ = backend(
        linear_cross_entropy.forward_backward,
        at(x),
        at(weight),
        at(targets),
        dweight=at(once.copy()),
        logits=at(np.zeros((5, 32), dtype)),
    )
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-5, atol=1e-6)


def test_nothing_to_learn_from_in_a_chunk_or_at_all(backend, dtype):
    x, weight, targets = inputs(12, 8, 32, 32, dtype)
    at = backend.array
    for ignored in slice(4, 8), slice(None):
        targets[ignored] = -100
        loss, dx, dweight, _ = backend(
            linear_cross_entropy.forward_backward,
            at(x),
            at(weight),
            at(targets),
            logits=at(np.zeros((4, 32), dtype)),
        )
        assert not dx[ignored].any()
    assert loss == 0
    assert not dweight.any()


def test_every_kernel_sees_a_chunk_and_the_rows_are_counted_once():
    """Nobody reads or writes an array of all logits."""
    x, weight, targets = inputs(10, 8, 64, 64, np.dtype(np.float32))
    with kernels.emulated("profile") as profiles:
        linear_cross_entropy.forward_backward(x, weight, targets, logits=np.zeros((4, 64), np.float32))
    names = [p.kernel.partition("<")[0] for p in profiles]
    assert names == ["count_valid", *["resident_forward_backward"] * 3, "reduce_losses"]
    sizes = [p.arrays["dlogits/logits"].size for p in profiles[1:-1]]
    assert sizes == [n * 64 * 4 for n in (4, 4, 2)]


@pytest.mark.gpu
def test_a_recording_repeats_it(dtype):
    """Nothing waits for the host, and only arrays on the device decide: a CUDA graph gives the same bits."""
    import cupy

    x, weight, targets = (cupy.asarray(a) for a in inputs(100, 64, 512, 500, dtype))
    factor, room = cupy.ones(1, np.float32), cupy.empty((32, 512), dtype)
    loss, dx, dweight = cupy.empty((), np.float32), cupy.empty_like(x), cupy.empty((512, 64), np.float32)

    def run():
        dweight.fill(0)
        linear_cross_entropy.forward_backward(
            x, weight, targets, factor, vocabulary=500, loss=loss, dx=dx, dweight=dweight, logits=room
        )

    run()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        run()
        graph = stream.end_capture()
    targets[:50] = -100  # the number of valid rows is counted anew
    factor.fill(2)
    run()
    expected = [a.copy() for a in (loss, dx, dweight)]
    for a in (loss, dx, dweight):
        a.fill(7)
    graph.launch()
    cupy.cuda.Device().synchronize()
    for got, right in zip((loss, dx, dweight), expected, strict=True):
        assert (got == right).all()
