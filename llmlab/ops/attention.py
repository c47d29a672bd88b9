"""Causal attention of many heads, exact, and without keeping anything of size T² (Dao et al. 2022).

Per head, for query i over the keys j <= i:

    s_ij = q_i · k_j / √D         lse_i = log Σ_j exp(s_ij)
    p_ij = exp(s_ij - lse_i)      y_i = Σ_j p_ij v_j

Backward recomputes p from q, k and the one number lse_i. Softmax's backward needs Σ_j dp_ij p_ij, which is
Σ_j (dy_i · v_j) p_ij = dy_i · y_i, so it needs no p either:

    dv_j = Σ_i p_ij dy_i          ds_ij = p_ij (dy_i · v_j - dy_i · y_i)
    dq_i = Σ_j ds_ij k_j / √D     dk_j = Σ_i ds_ij q_i / √D
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from llmlab.arrays import Array, namespace, scratch, scratch_frame
from llmlab.kernels import accelerated
from llmlab.ops._precision import mixed_precision, result
from llmlab.ops._rows import row_dot, row_sum
from llmlab.ops.check import checked, integer

_QUERIES = 64  # in a run: the shorter it is, the fewer keys lie after all its queries
_SCORES = 1 << 19  # alive at once: they stay in the cache, and calls are long enough for threads to overlap


def _check_heads(
    qkv: Array, heads: int, dy: Array | None = None, y: Array | None = None, lse: Array | None = None, **_,
) -> None:
    integer("heads", heads, 1)
    if qkv.shape[-1] % (3 * heads):
        raise ValueError(f"qkv has shape {qkv.shape}, needs a last axis divisible by {3 * heads} (3 heads): "
                         f"q, k and v side by side, each of heads * D channels")
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    for name, x, shape in (("dy", dy, (B, T, C)), ("y", y, (B, T, C)), ("lse", lse, (B, heads, T))):
        if x is not None and x.shape != shape:
            raise ValueError(f"{name} has shape {x.shape}, needs {shape} beside a qkv of shape {qkv.shape}")


def _heads(x: Array, heads: int) -> Array:
    """x (B, T, H·D) seen as (B, H, T, D): a view, since products take strides."""
    B, T, C = x.shape
    return x.reshape(B, T, heads, C // heads).transpose(0, 2, 1, 3)


def _tiles(B: int, heads: int, T: int) -> Iterator[tuple[slice, slice]]:
    """Sequences and queries in runs; the queries from the last to the first: the first run sees every key."""
    step = max(1, _SCORES // max(1, heads * min(T, _QUERIES) * T))
    for b in range(0, B, step):
        for start in reversed(range(0, T, _QUERIES)):
            yield slice(b, min(b + step, B)), slice(start, min(start + _QUERIES, T))


def _after(like: Array) -> Array:
    """The mask of the square on the diagonal: -∞ where the key (column) comes after the query (row)."""
    xp = namespace(like)
    return xp.triu(xp.full((_QUERIES, _QUERIES), -math.inf, like.dtype), 1)


def _scaled(q: Array) -> Array:
    """q/√D."""
    return namespace(q).multiply(q, 1 / math.sqrt(q.shape[-1]), out=scratch(q.shape, q.dtype, q))


def _scores(scaled: Array, k: Array, after: Array) -> Array:
    """s = q kᵀ/√D of the last n of m places with them all, -∞ where the key comes after the query."""
    (B, H, n, _), m = scaled.shape, k.shape[2]
    s = namespace(k).matmul(scaled, k.swapaxes(2, 3), out=scratch((B, H, n, m), k.dtype, k))
    s[..., m - n:] += after[:n, :n]
    return s


@checked(_check_heads, qkv="B T 3C", y="B T C", lse="sum B H T")
@accelerated("attention", "forward")
@mixed_precision("y")
def forward(
    qkv: Array, heads: int, *, y: Array | None = None, lse: Array | None = None,
) -> tuple[Array, Array]:
    """y = softmax(q kᵀ/√D) v, causal, per head.

    qkv (B, T, 3C) holds q, k and v side by side, each of H = `heads` heads of D channels; returns y (B, T, C)
    and lse (B, H, T), the logarithm of each row's softmax sum, in the accumulation dtype.

    >>> import numpy as np
    >>> qkv = np.zeros((1, 2, 3)); qkv[0, :, 2] = [1.0, 3.0]   # equal scores: the mean of the values so far
    >>> y, lse = forward(qkv, 1)
    >>> y[0, :, 0].tolist(), lse[0, 0].round(4).tolist()
    ([1.0, 2.0], [0.0, 0.6931])
    """
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    y = result(y, (B, T, C), qkv)
    lse = result(lse, (B, heads, T), qkv)
    q, k, v, out = (_heads(x, heads) for x in (*_thirds(qkv), y))
    after = _after(qkv)
    for b, i in _tiles(B, heads, T):
        with scratch_frame():
            _attend(q[b, :, i], k[b, :, :i.stop], v[b, :, :i.stop], after, out[b, :, i], lse[b, :, i])
    return y, lse


def _thirds(qkv: Array) -> tuple[Array, Array, Array]:
    """q, k and v, each (B, T, C): views."""
    C = qkv.shape[-1] // 3
    return qkv[..., :C], qkv[..., C:2 * C], qkv[..., 2 * C:]


def _attend(q: Array, k: Array, v: Array, after: Array, y: Array, lse: Array) -> None:
    """A run of queries (b, H, n, D) attends to the keys (b, H, m, D) up to the last of them."""
    xp = namespace(q)
    s = _scores(_scaled(q), k, after)
    # p = exp(s - m), l = Σ_j p
    m = s.max(-1, keepdims=True)
    s -= m
    p = xp.exp(s, out=s)
    l = row_sum(p)[..., None]
    # y = p v / l: the division on n × D numbers instead of n × m
    xp.matmul(p, v, out=y)
    y /= l
    # lse = m + log l
    lse[...] = (m + xp.log(l))[..., 0]


@checked(_check_heads, dy="B T C", qkv="B T 3C", y="B T C", lse="sum B H T", dqkv="B T 3C")
@accelerated("attention", "backward")
@mixed_precision("dqkv")
def backward(
    dy: Array, qkv: Array, y: Array, lse: Array, heads: int, *, dqkv: Array | None = None,
) -> Array:
    """dqkv from dy, recomputing the probabilities from qkv and lse.

    dy and y (B, T, C), qkv (B, T, 3C), lse (B, H, T) as forward returned them; returns dqkv like qkv.

    >>> import numpy as np
    >>> qkv = np.zeros((1, 2, 3)); qkv[0, :, 2] = [1.0, 3.0]
    >>> y, lse = forward(qkv, 1)
    >>> backward(np.ones((1, 2, 1)), qkv, y, lse, 1)[0, :, 2].round(6).tolist()   # dv = column sums of p
    [1.5, 0.5]
    """
    dqkv = result(dqkv, qkv.shape, qkv)
    q, k, v, dq, dk, dv, o, do = (
        _heads(x, heads) for x in (*_thirds(qkv), *_thirds(dqkv), y, dy))
    after = _after(qkv)
    B, T, _ = qkv.shape
    for b, i in _tiles(B, heads, T):
        j = slice(0, i.stop)
        with scratch_frame():
            _attend_backward(
                do[b, :, i], q[b, :, i], k[b, :, j], v[b, :, j], after, o[b, :, i], lse[b, :, i],
                dq[b, :, i], dk[b, :, j], dv[b, :, j], first=i.stop == T)
    return dqkv


def _attend_backward(
    dy: Array, q: Array, k: Array, v: Array, after: Array, y: Array, lse: Array,
    dq: Array, dk: Array, dv: Array, first: bool,
) -> None:
    """The gradients of `_attend`. The first run of queries writes dk and dv, the others add to them."""
    xp = namespace(q)
    scaled = _scaled(q)
    # p = exp(s - lse)
    s = _scores(scaled, k, after)
    s -= lse[..., None]
    p = xp.exp(s, out=s)
    # dv = pᵀ dy
    _product(p.swapaxes(2, 3), dy, dv, first)
    # ds = p (dy vᵀ - Σ_d dy y)
    ds = xp.matmul(dy, v.swapaxes(2, 3), out=scratch(p.shape, p.dtype, p))
    ds -= row_dot(dy, y)[..., None]
    ds *= p
    # dq = ds k / √D,  dk = dsᵀ q / √D
    xp.matmul(ds, k, out=dq)
    dq *= 1 / math.sqrt(q.shape[-1])
    _product(ds.swapaxes(2, 3), scaled, dk, first)


def _product(a: Array, b: Array, out: Array, first: bool) -> None:
    """out = a b, or out += a b if it is not the first."""
    if first:
        namespace(a).matmul(a, b, out=out)
    else:
        out += namespace(a).matmul(a, b, out=scratch(out.shape, a.dtype, a))
