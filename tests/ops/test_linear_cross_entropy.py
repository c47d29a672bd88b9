"""Head and cross-entropy by chunks: whatever the chunks, the numbers of the two ops one after the other."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab import gradcheck
from llmlab.arrays import bfloat16, float32
from llmlab.ops import cross_entropy, linear, linear_cross_entropy

N, C, V = 12, 5, 9
ROWS = [1, 4, 5, N, N + 5, None]  # with 5, the last chunk is shorter


def inputs(N=N, C=C, V=V, seed=0):
    generator = np.random.default_rng(seed)
    x, weight = generator.standard_normal((N, C)), generator.standard_normal((V, C))
    targets = generator.integers(0, V, N)
    targets[generator.random(N) < 0.2] = -100
    return x, weight, targets


def workspace(rows, V=V, dtype=float):
    return None if rows is None else np.full((rows, V), np.nan, dtype)


def apart(x, weight, targets, dloss=1.0, **attributes):
    """Loss, dx and dweight by the two ops, with all logits there at once."""
    logits = linear.forward(x, weight)
    loss, dlogits = cross_entropy.forward_backward(logits, targets, dloss, **attributes)
    dx, dweight, _ = linear.backward(dlogits, x, weight)
    return loss, dx, dweight


def every_way(x, weight, targets, dloss=1.0, rows=None, **attributes):
    """Loss, dx and dweight by `forward` and `backward`, and by the fused function."""
    def room():
        return workspace(rows, len(weight), x.dtype)

    loss, _ = linear_cross_entropy.forward(x, weight, targets, **attributes, logits=room())
    yield loss, *linear_cross_entropy.backward(dloss, x, weight, targets, **attributes, logits=room())[:2]
    yield linear_cross_entropy.forward_backward(
        x, weight, targets, dloss, **attributes, logits=room())[:3]


def check_equal(x, weight, targets, dloss=1.0, rows=None, **attributes):
    expected = apart(x, weight, targets, dloss, **attributes)
    for got in every_way(x, weight, targets, dloss, rows, **attributes):
        for value, right in zip(got, expected, strict=True):
            assert value.shape == right.shape
            np.testing.assert_allclose(value, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("vocabulary", [None, V - 2])
def test_every_chunk_equals_the_two_ops(rows, reduction, vocabulary):
    x, weight, targets = inputs(V=vocabulary or V)
    weight = np.concatenate([weight, np.full((V - len(weight), C), 7.0)])  # padding that would win
    dloss = np.linspace(-1, 2, N) if reduction == "none" else 0.7
    check_equal(x, weight, targets, dloss, rows, reduction=reduction, vocabulary=vocabulary)


@settings(max_examples=40)
@given(N=st.integers(0, 20), C=st.integers(1, 6), V=st.integers(1, 9), rows=st.integers(1, 25),
       seed=st.integers(0, 99))
def test_any_shape_in_any_chunks(N, C, V, rows, seed):
    check_equal(*inputs(N, C, V, seed), rows=rows)


@pytest.mark.parametrize("rows", ROWS)
def test_a_chunk_without_a_target_and_a_class_that_is_ignored(rows):
    """The mean is over the valid rows of all chunks, never a mean of means."""
    x, weight, targets = inputs()
    targets[4:8] = -100
    check_equal(x, weight, targets, rows=rows)
    targets[:] = [3, 0, 3, 1, 3, 3, 3, 3, 2, 3, 8, 3]
    check_equal(x, weight, targets, rows=rows, ignore_index=3)
    targets[:] = -100
    for loss, dx, dweight in every_way(x, weight, targets, rows=rows):
        assert loss == 0
        assert not dx.any()
        assert not dweight.any()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_float64_equals_torch(rows, reduction):
    torch = pytest.importorskip("torch")
    x, weight, targets = inputs()
    leaves = [torch.from_numpy(a).requires_grad_() for a in (x, weight)]
    loss = torch.nn.functional.cross_entropy(
        torch.nn.functional.linear(*leaves), torch.from_numpy(targets), reduction=reduction)
    loss.sum().backward()
    for got in every_way(x, weight, targets, rows=rows, reduction=reduction):
        for value, theirs in zip(got, (loss.detach(), leaves[0].grad, leaves[1].grad), strict=True):
            np.testing.assert_allclose(value, theirs.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 5, N])
def test_gradients_equal_differences(rows):
    x, weight, targets = inputs()
    _, dx, dweight, _ = linear_cross_entropy.forward_backward(x, weight, targets, logits=workspace(rows))

    def loss():
        return float(linear_cross_entropy.forward(x, weight, targets, logits=workspace(rows))[0])

    gradcheck.check(loss, {"x": x, "weight": weight}, {"x": dx, "weight": dweight})


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("rows", ROWS)
def test_dx_over_x_and_dweight_added_to(dtype, rows):
    x, weight, targets = inputs()
    x, weight = x.astype(dtype), weight.astype(dtype)
    for buffers in ({}, {"dx": x.copy()}):
        argument = buffers.get("dx", x)
        before = np.ones((V, C), np.float32)
        loss, dx, dweight, _ = linear_cross_entropy.forward_backward(
            argument, weight, targets, **buffers, dweight=before, logits=workspace(rows, dtype=dtype))
        expected = linear_cross_entropy.forward_backward(
            x, weight, targets, logits=workspace(rows, dtype=dtype))
        assert loss == expected[0]
        np.testing.assert_array_equal(dx, expected[1])
        assert dweight is before
        np.testing.assert_allclose(dweight - 1, expected[2], atol=1e-6)
        assert dx is argument or not buffers


def test_leading_axes_are_rows():
    x, weight, targets = inputs()
    shaped = x.reshape(3, 4, C), weight, targets.reshape(3, 4)
    for reduction in ("mean", "none"):
        flat = linear_cross_entropy.forward_backward(x, weight, targets, reduction=reduction)
        loss, dx, dweight, _ = linear_cross_entropy.forward_backward(
            *shaped, reduction=reduction, logits=workspace(5))
        np.testing.assert_allclose(loss.reshape(-1), flat[0].reshape(-1), rtol=1e-12)
        np.testing.assert_allclose(dx.reshape(N, C), flat[1], atol=1e-12)
        np.testing.assert_allclose(dweight, flat[2], atol=1e-12)


def test_the_full_logits_never_exist():
    rows, many, wide = 50, 2000, 1000
    x, weight, targets = inputs(many, 4, wide)
    room = workspace(rows, wide)
    linear_cross_entropy.forward_backward(x, weight, targets, logits=room)  # scratch has its size
    tracemalloc.start()
    linear_cross_entropy.forward(x, weight, targets, logits=room)
    linear_cross_entropy.forward_backward(x, weight, targets, logits=room)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.1 * many * wide * x.itemsize


def test_a_workspace_larger_than_needed_may_hold_anything():
    x, weight, targets = (a.astype(np.float16) if a.dtype == float else a for a in inputs())
    expected = linear_cross_entropy.forward_backward(x, weight, targets)
    room = workspace(N + 5, dtype=np.float16)
    got = linear_cross_entropy.forward_backward(x, weight, targets, logits=room)
    for value, right in zip(got[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(value, right)
    assert np.isfinite(room).all()


@pytest.mark.parametrize(("name", "value", "error", "message"), [
    ("logits", np.empty((0, V)), ValueError, "logits has 0 rows, needs at least 1"),
    ("logits", np.empty((2, V + 1)), ValueError, rf"logits has shape .* V = {V} as in weight"),
    ("logits", np.empty((2, V), np.float32), TypeError, "logits has dtype float32, needs float64"),
    ("logits", np.empty(V), ValueError, "logits has shape"),
    ("loss", np.empty(N), ValueError, "loss has shape"),
    ("reduction", "max", ValueError, "reduction is 'max', needs to be one of"),
    ("vocabulary", V + 1, ValueError, f"vocabulary is {V + 1}, needs to be at most {V}"),
    ("ignore_index", 0.5, TypeError, "ignore_index is 0.5"),
    ("targets", np.full(N, V), ValueError, rf"targets\[0\] is {V}, needs to lie in \[0, {V}\)"),
    ("targets", np.zeros(N + 1, int), ValueError, "targets has shape"),
    ("weight", np.ones((V, C + 1)), ValueError, "weight has shape"),
])
def test_what_fits_not_is_refused_by_name(name, value, error, message):
    arguments = dict(zip(("x", "weight", "targets"), inputs(), strict=True)) | {name: value}
    for function in (linear_cross_entropy.forward, linear_cross_entropy.forward_backward):
        with pytest.raises(error, match=message):
            function(**arguments)


@pytest.mark.parametrize(("dloss", "error"), [(None, TypeError), ("1", TypeError), (np.ones(N), ValueError)])
def test_a_factor_that_fits_no_loss_is_an_error(dloss, error):
    for function in (linear_cross_entropy.backward, linear_cross_entropy.forward_backward):
        with pytest.raises(error, match="dloss"):
            function(**dict(zip(("x", "weight", "targets"), inputs(), strict=True)), dloss=dloss)
