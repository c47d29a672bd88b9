"""Cross-entropy: text, emulated kernels and CUDA kernels against the text in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab import kernels
from llmlab.ops import cross_entropy

# Of the largest value: one rounding in the storage dtype; and the error of the fast exponential, summed.
TOLERANCE = {"float32": 2e-6, "bfloat16": 2**-8, "float16": 2**-11}
LOSS = 2e-6

# Width, and vocabulary: whole packs (held in shared memory) and not (streamed), with padding and without.
WIDTHS = [(64, 64), (64, 57), (50, 50), (11, 7), (1024, 1000), (4099, 4099)]


def close(result, reference, tolerance):
    scale = np.abs(reference).max(initial=0) or 1.0
    np.testing.assert_allclose(np.asarray(result, np.float64), reference, rtol=0, atol=tolerance * scale)


def inputs(N, V, vocabulary, dtype, seed=0):
    """Logits with garbage in the padding, and targets of which the second is ignored."""
    rng = np.random.default_rng(seed)
    logits = (3 * rng.standard_normal((N, V))).astype(dtype)
    logits[:, vocabulary:] = 50
    targets = rng.integers(0, vocabulary, N)
    targets[1:2] = -100
    return logits, targets


def check(backend, dtype, N, V, vocabulary, reduction, offset=0):
    logits, targets = inputs(N, V, vocabulary, dtype)
    dloss = np.linspace(-1, 2, N).astype(np.float32) if reduction == "none" else 0.5
    attributes = {"vocabulary": vocabulary, "reduction": reduction}
    at = backend.array
    weight = at(dloss) if reduction == "none" else dloss
    wide = logits.astype(np.float64)
    loss_64, lse_64 = cross_entropy.forward.text(wide, targets, **attributes)
    dlogits_64 = cross_entropy.backward.text(dloss, wide, targets, lse_64, **attributes)

    loss, lse = backend(cross_entropy.forward, at(logits, offset), at(targets), **attributes)
    close(loss, loss_64, LOSS)
    close(lse, lse_64, LOSS)
    dlogits = backend(cross_entropy.backward, weight, at(logits, offset), at(targets), at(lse), **attributes)
    close(dlogits, dlogits_64, TOLERANCE[dtype.name])
    place = at(logits, offset)
    for out in None, place:  # beside the logits, and over them
        given = at(logits, offset) if out is None else place
        loss, dlogits = backend(
            cross_entropy.forward_backward, given, at(targets), weight, **attributes, dlogits=out
        )
        close(loss, loss_64, LOSS)
        close(dlogits, dlogits_64, TOLERANCE[dtype.name])
        assert not dlogits[1:2].any()
        assert not dlogits[:, vocabulary:].any()


@pytest.mark.parametrize(("V", "vocabulary"), WIDTHS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_against_float64(backend, dtype, V, vocabulary, reduction):
    check(backend, dtype, 5, V, vocabulary, reduction)


@settings(max_examples=5, derandomize=True)
@given(N=st.integers(0, 9), V=st.integers(1, 200), padding=st.integers(0, 9), offset=st.integers(0, 3))
def test_any_shape_anywhere(backend, dtype, N, V, padding, offset):
    check(backend, dtype, N, V + padding, V, "mean", offset)


def test_blocks_that_walk_over_several_rows(backend):
    check(backend, np.dtype(np.float32), 70, 512, 500, "mean")


def test_known_values(backend):
    logits, targets = np.array([[0, 0, 0], [1, 2, 3]], np.float32), np.array([0, 2])
    at = backend.array
    place = at(logits)
    _, lse = backend(cross_entropy.forward, place, at(targets))
    runs = [
        backend(
            cross_entropy.backward, at(np.float32([2, -1])), place, at(targets), at(lse), reduction="none"
        )
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*runs)
    np.testing.assert_allclose(runs[0][0], [-4 / 3, 2 / 3, 2 / 3], rtol=1e-6)
    assert (place == at(logits)).all()  # untouched
    for dloss, value in (1.0, 1.0), (0.5, 0.5), (65536.0, 65536.0), (at(np.float32([3])), 3.0):
        dlogits = backend(cross_entropy.backward, dloss, place, at(targets), at(lse))
        np.testing.assert_allclose(dlogits[0, 1], value / 6, rtol=1e-6)


def test_nothing_to_learn_from(backend, dtype):
    logits = np.full((4, 16), np.nan, dtype)
    targets = np.full(4, -100)
    loss, dlogits = backend(cross_entropy.forward_backward, backend.array(logits), backend.array(targets))
    assert loss == 0
    assert not dlogits.any()


def test_a_valid_class_can_be_ignored(backend):
    logits, targets = inputs(4, 11, 11, np.dtype(np.float32))
    targets[:] = [3, 0, 3, 1]
    loss, dlogits = backend(
        cross_entropy.forward_backward, backend.array(logits), backend.array(targets), ignore_index=3
    )
    expected, _ = cross_entropy.forward_backward.text(logits.astype(float)[[1, 3]], targets[[1, 3]])
    close(loss, expected, LOSS)
    assert not dlogits[[0, 2]].any()
    assert dlogits[1, 3] > 0  # class 3 still takes part in the denominator


def test_a_label_outside_the_vocabulary_is_never_a_number():
    """On a host it is refused (tests/ops); a kernel, which cannot raise, gives NaN and so spoils the norm."""
    from llmlab.kernels import cross_entropy as launcher

    logits, targets = np.zeros((4, 16), np.float32), np.array([0, 16, 2, -1])
    with kernels.emulated("check"):
        losses, _ = launcher.forward(logits, targets, reduction="none")
        loss, dlogits = launcher.forward_backward(logits, targets)
    np.testing.assert_array_equal(np.isnan(losses), [False, True, False, True])
    assert np.isnan(loss)
    np.testing.assert_array_equal(np.isnan(dlogits).all(1), [False, True, False, True])


@pytest.mark.gpu
def test_more_than_two_billion_elements(gpu_room):
    import cupy as cp
    import ml_dtypes

    gpu_room(8)
    rows, V = 43_000, 50_257
    logits = cp.zeros((rows, V), ml_dtypes.bfloat16)
    logits[-5:] = cp.random.standard_normal((5, V), dtype=np.float32).astype(ml_dtypes.bfloat16)
    targets = cp.full(rows, -100)
    targets[-5:] = cp.arange(5)
    alone, dalone = cross_entropy.forward_backward(logits[-5:].copy(), targets[-5:])
    loss, dlogits = cross_entropy.forward_backward(logits, targets, dlogits=logits)
    assert abs(float(loss - alone)) < 1e-6
    assert (dlogits[-5:] == dalone).all()
