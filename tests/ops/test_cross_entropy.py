"""Cross-entropy: rows that are ignored, labels that are not there, factors from above, logits left alone."""

import numpy as np
import pytest

from llmlab.arrays import bfloat16, float16, float32, float64
from llmlab.ops import cross_entropy


@pytest.fixture
def logits():
    return np.random.default_rng(0).standard_normal((4, 11))


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def one_hot(targets, V):
    return np.eye(V)[targets]


def every_way(logits, targets, dloss=1.0, **attributes):
    """Loss and gradient by the two functions, and by the fused one."""
    loss, lse = cross_entropy.forward(logits, targets, **attributes)
    yield loss, cross_entropy.backward(dloss, logits, targets, lse, **attributes)
    yield cross_entropy.forward_backward(logits, targets, dloss, **attributes)


@pytest.mark.parametrize("dtype", [float64, float32, bfloat16, float16], ids=lambda d: d.name)
def test_nothing_valid_is_loss_zero_and_gradient_zero(logits, dtype):
    targets = np.full(4, -100)
    for reduction, shape in (("mean", ()), ("sum", ()), ("none", (4,))):
        for loss, dlogits in every_way(logits.astype(dtype), targets, reduction=reduction):
            np.testing.assert_array_equal(loss, np.zeros(shape))
            np.testing.assert_array_equal(dlogits, 0)


def test_the_mean_is_over_the_valid_rows(logits):
    targets = np.array([-100, 3, -100, 5])
    expected = -np.log(softmax(logits)[[1, 3], [3, 5]]).mean()
    for loss, dlogits in every_way(logits, targets):
        np.testing.assert_allclose(loss, expected, rtol=1e-12)
        np.testing.assert_array_equal(dlogits[[0, 2]], 0)
        gradient = (softmax(logits[[1, 3]]) - one_hot([3, 5], 11)) / 2
        np.testing.assert_allclose(dlogits[[1, 3]], gradient, atol=1e-12)


def test_what_stands_in_an_ignored_row_goes_nowhere(logits):
    logits[1] = np.nan
    for loss, dlogits in every_way(logits, np.array([0, -100, 2, 3])):
        assert np.isfinite(loss)
        assert np.isfinite(dlogits).all()


@pytest.mark.parametrize("targets", [[0, 11, 2, 3], [0, 1, 2, -1]])
def test_a_label_that_is_not_there_is_an_error(logits, targets):
    targets = np.array(targets)
    match = r"targets\[\d\] is (11|-1), needs to lie in \[0, 11\) \(or -100, which is ignored\)"
    with pytest.raises(ValueError, match=match):
        cross_entropy.forward(logits, targets)
    with pytest.raises(ValueError, match=match):
        cross_entropy.forward_backward(logits, targets)
    with pytest.raises(ValueError, match=match):
        cross_entropy.backward(1.0, logits, targets, np.zeros(4))


def test_a_class_may_be_the_one_ignored(logits):
    """Rows labelled 3 are skipped; class 3 stays in the denominator of the others."""
    targets = np.array([3, 1, 3, 2])
    expected = -np.log(softmax(logits)[[1, 3], [1, 2]]).mean()
    for loss, dlogits in every_way(logits, targets, ignore_index=3):
        np.testing.assert_allclose(loss, expected, rtol=1e-12)
        np.testing.assert_array_equal(dlogits[[0, 2]], 0)
        assert (dlogits[[1, 3], 3] > 0).all()


def test_each_row_has_its_own_factor_from_above():
    logits, targets = np.array([[0.0, 0, 0], [1, 2, 3]]), np.array([0, 2])
    w = np.array([2.0, -1.0])
    expected = w[:, None] * (softmax(logits) - one_hot(targets, 3))
    np.testing.assert_allclose(expected[0], [-4 / 3, 2 / 3, 2 / 3])
    for loss, dlogits in every_way(logits, targets, w, reduction="none"):
        np.testing.assert_allclose(loss, -np.log(softmax(logits)[[0, 1], targets]), rtol=1e-12)
        np.testing.assert_allclose(dlogits, expected, atol=1e-12)


@pytest.mark.parametrize(
    "dloss", [1.0, 0.5, 65536.0, np.float32(2), np.full(1, 3, np.float32), np.array(4.0)], ids=repr)
def test_the_gradient_is_linear_in_dloss(logits, dloss):
    targets = np.array([1, 2, -100, 3])
    logits = logits.astype(float32)
    one = [dlogits for _, dlogits in every_way(logits, targets)]
    for expected, (loss, dlogits) in zip(one, every_way(logits, targets, dloss)):
        assert loss.dtype == dlogits.dtype == float32
        np.testing.assert_allclose(dlogits, expected * np.float32(dloss), rtol=1e-6)


def test_logits_are_overwritten_only_when_asked(logits):
    targets = np.array([1, 2, -100, 3])
    before = logits.copy()
    _, lse = cross_entropy.forward(logits, targets)
    first = cross_entropy.backward(1.0, logits, targets, lse)
    second = cross_entropy.backward(1.0, logits, targets, lse)
    cross_entropy.forward_backward(logits, targets)
    np.testing.assert_array_equal(logits, before)
    np.testing.assert_array_equal(first, second)
    fused = logits.copy()
    assert cross_entropy.forward_backward(fused, targets, dlogits=fused)[1] is fused
    np.testing.assert_allclose(fused, first, atol=1e-14)
    assert cross_entropy.backward(1.0, logits, targets, lse, dlogits=logits) is logits
    np.testing.assert_array_equal(logits, first)


@pytest.mark.parametrize("dtype", [float64, bfloat16], ids=lambda d: d.name)
def test_padding_of_the_vocabulary_is_not_there(logits, dtype):
    logits = logits.astype(dtype)
    padded = np.concatenate([logits, np.full((4, 5), 1e4, dtype)], axis=1)
    targets = np.array([1, 10, -100, 3])
    for (loss, dlogits), (expected, gradient) in zip(every_way(padded, targets, vocabulary=11),
                                                     every_way(logits, targets)):
        np.testing.assert_array_equal(loss, expected)
        np.testing.assert_array_equal(dlogits[:, :11], gradient)
        np.testing.assert_array_equal(dlogits[:, 11:], 0)
    with pytest.raises(ValueError, match=r"targets\[0\] is 11"):
        cross_entropy.forward(padded, np.array([11, 0, 0, 0]), vocabulary=11)


def test_large_logits_do_not_overflow():
    logits = np.array([[1e4, 0, -1e4]], float32)
    for loss, dlogits in every_way(logits, np.array([1])):
        assert loss == 1e4
        np.testing.assert_array_equal(dlogits, [[1, -1, 0]])


@pytest.mark.parametrize(("dloss", "error"), [
    (None, TypeError), ("1", TypeError), ([1.0], TypeError), (np.ones(4), ValueError),
    (np.ones((1, 1)), ValueError),
])
def test_a_factor_that_fits_no_loss_is_an_error(logits, dloss, error):
    targets = np.array([1, 0, 2, 3])
    _, lse = cross_entropy.forward(logits, targets)
    with pytest.raises(error, match="dloss"):
        cross_entropy.backward(dloss, logits, targets, lse)
    with pytest.raises(error, match="dloss"):
        cross_entropy.forward_backward(logits, targets, dloss)


@pytest.mark.parametrize(("name", "value", "error"), [
    ("ignore_index", 1.5, TypeError), ("ignore_index", "a", TypeError), ("vocabulary", 0, ValueError),
    ("vocabulary", 12, ValueError), ("vocabulary", 5.0, TypeError), ("reduction", "max", ValueError),
    ("loss", np.zeros((2, 3)), ValueError),
])
def test_attributes_that_mean_nothing_are_an_error(logits, name, value, error):
    for function in (cross_entropy.forward, cross_entropy.forward_backward):
        with pytest.raises(error, match=f"^{name} "):
            function(logits, np.array([1, 0, 2, 3]), **{name: value})
