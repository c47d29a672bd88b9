"""Attention at ragged lengths, with heads that do not see each other, and queries in more than one run."""

import numpy as np
import pytest

from llmlab.arrays import float32, float64
from llmlab.ops import attention


def naive(qkv, heads):
    """The formula, with the whole score matrix."""
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (x.reshape(B, T, heads, -1).transpose(0, 2, 1, 3) for x in np.split(qkv, 3, axis=-1))
    s = np.where(np.tri(T, dtype=bool), q @ k.swapaxes(2, 3) / np.sqrt(C // heads), -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return q, k, v, p


def naive_forward_backward(qkv, dy, heads):
    q, k, v, p = naive(qkv, heads)
    B, H, T, D = q.shape

    def merge(x):
        return x.transpose(0, 2, 1, 3).reshape(B, T, H * D)

    do = dy.reshape(B, T, H, D).transpose(0, 2, 1, 3)
    dp = do @ v.swapaxes(2, 3)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / np.sqrt(D)
    dq, dk, dv = ds @ k, ds.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ do
    return merge(p @ v), np.concatenate([merge(dq), merge(dk), merge(dv)], axis=-1)


@pytest.mark.parametrize("T", [1, 2, 31, 33, 63, 65, 127, 129, 300, 513])
@pytest.mark.parametrize("D", [8, 40, 80])
def test_lengths_and_head_sizes_of_any_kind(T, D):
    generator = np.random.default_rng(T)
    H = 3
    qkv, dy = generator.standard_normal((2, T, 3 * H * D)), generator.standard_normal((2, T, H * D))
    expected = naive_forward_backward(qkv, dy, H)
    for dtype, tolerance in ((float64, 1e-10), (float32, 1e-4)):
        a = qkv.astype(dtype)
        y, lse = attention.forward(a, H)
        got = y, attention.backward(dy.astype(dtype), a, y, lse, H)
        for value, exact in zip(got, expected):
            np.testing.assert_allclose(value, exact, atol=tolerance * max(1, np.abs(exact).max()))


@pytest.mark.parametrize("T", [65, 300])
def test_heads_do_not_see_each_other(T):
    """Everything but one (batch, head) filled with NaN: that one gives the same bits as among zeros."""
    generator = np.random.default_rng(0)
    B, H, D = 2, 3, 8
    b, h = 1, 1
    results = []
    for other in (0, np.nan):
        qkv, dy = np.full((B, T, 3, H, D), other, float32), np.full((B, T, H, D), other, float32)
        generator = np.random.default_rng(0)
        qkv[b, :, :, h], dy[b, :, h] = generator.standard_normal((T, 3, D)), generator.standard_normal((T, D))
        qkv, dy = qkv.reshape(B, T, -1), dy.reshape(B, T, -1)
        y, lse = attention.forward(qkv, H)
        dqkv = attention.backward(dy, qkv, y, lse, H)
        results.append((y.reshape(B, T, H, D)[b, :, h], dqkv.reshape(B, T, 3, H, D)[b, :, :, h]))
    for zeros, nans in zip(*results):
        assert np.isfinite(nans).all()
        np.testing.assert_array_equal(zeros, nans)


def test_the_future_is_not_seen():
    generator = np.random.default_rng(0)
    qkv = generator.standard_normal((1, 300, 24)).astype(float32)
    y, _ = attention.forward(qkv, 2)
    changed = qkv.copy()
    changed[:, 200:] = 1e3
    np.testing.assert_allclose(attention.forward(changed, 2)[0][:, :200], y[:, :200], atol=1e-6)


def test_large_scores_do_not_overflow():
    qkv = np.full((1, 4, 6), 200, float32)
    y, lse = attention.forward(qkv, 1)
    np.testing.assert_allclose(y, 200, rtol=1e-6)
    assert np.isfinite(attention.backward(np.ones_like(y), qkv, y, lse, 1)).all()


@pytest.mark.parametrize(("heads", "error", "message"), [
    (5, ValueError, "qkv has shape"), (0, ValueError, "heads is 0, needs to be at least 1"),
    (2.0, TypeError, "heads is 2.0, needs to be an integer"), (True, TypeError, "heads is True"),
    (None, TypeError, "heads is None"),
])
def test_heads_that_do_not_divide_the_channels_are_an_error(heads, error, message):
    with pytest.raises(error, match=message):
        attention.forward(np.zeros((1, 2, 24)), heads)


@pytest.mark.parametrize(
    ("name", "wrong", "needs"), [("y", (1, 2, 9), "1, 2, 8"), ("lse", (1, 4, 2), "1, 2, 2")])
def test_shapes_that_do_not_go_with_qkv_are_refused(name, wrong, needs):
    qkv = np.ones((1, 2, 24))
    arrays = {"y": np.ones((1, 2, 8)), "lse": np.ones((1, 2, 2)), name: np.ones(wrong)}
    message = rf"{name} has shape .*, needs \({needs}\) beside a qkv of shape"
    with pytest.raises(ValueError, match=message):
        attention.forward(qkv, 2, **{name: np.ones(wrong)})
    with pytest.raises(ValueError, match=message):
        attention.backward(np.ones_like(arrays["y"]), qkv, heads=2, **arrays)
