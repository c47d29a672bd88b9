"""Token and position embedding: x_bt = wte[token_bt] + wpe[t].

A lookup is a product with one-hot rows, so its gradient is a sum: each row of wte collects the dx of all
places where its token stood, each row of wpe those of all sequences.

    dwte_v = Σ over (b, t) with token_bt = v of dx_bt        dwpe_t = Σ_b dx_bt
"""

from __future__ import annotations

from llmlab.arrays import Array, is_cupy, namespace, scratch
from llmlab.kernels import accelerated
from llmlab.ops._precision import gradient, mixed_precision, result
from llmlab.ops.check import checked, ids


def _check_ids(tokens: Array, wte: Array, wpe: Array, **_) -> None:
    ids("tokens", tokens, len(wte))
    if tokens.shape[1] > len(wpe):
        raise ValueError(f"tokens has shape {tokens.shape}, sequences of {tokens.shape[1]}, but wpe has "
                         f"only {len(wpe)} positions; cut the sequence or build the model with a larger T")


@checked(_check_ids, tokens="integer B T", wte="V C", wpe="T_max C", x="B T C")
@accelerated("embedding", "forward")
@mixed_precision("x")
def forward(tokens: Array, wte: Array, wpe: Array, *, x: Array | None = None) -> Array:
    """x[b, t] = wte[tokens[b, t]] + wpe[t].

    tokens (B, T) integers in [0, V), wte (V, C), wpe (T_max, C) with T <= T_max; returns x (B, T, C). An id
    outside the vocabulary is a ValueError, never another row.

    >>> import numpy as np
    >>> forward(np.array([[1, 0]]), np.array([[1.0], [2.0]]), np.array([[10.0], [20.0]])).tolist()
    [[[12.0], [21.0]]]
    """
    B, T = tokens.shape
    x = result(x, (B, T, wte.shape[1]), wte)
    # x = wte[tokens] + wpe
    if is_cupy(wte):
        x[...] = wte[tokens]
    else:
        wte.take(tokens, axis=0, out=x, mode="clip")  # the ids were checked; "raise" would copy x
    x += wpe[:T]
    return x


@checked(_check_ids, dx="B T C", tokens="integer B T", wte="V C", wpe="T_max C",
         dwte="sum V C", dwpe="sum T_max C")
@accelerated("embedding", "backward")
@mixed_precision()
def backward(
    dx: Array, tokens: Array, wte: Array, wpe: Array,
    *, dwte: Array | None = None, dwpe: Array | None = None,
) -> tuple[Array, Array]:
    """Add each dx[b, t] to row tokens[b, t] of dwte and to row t of dwpe.

    dx (B, T, C), tokens (B, T); dwte (V, C) and dwpe (T_max, C) are in the accumulation dtype, and added to
    if given. Repeated tokens add up, in the order of their places.

    >>> import numpy as np
    >>> dwte, dwpe = backward(np.ones((1, 3, 1)), np.array([[2, 0, 2]]), np.zeros((3, 1)), np.zeros((4, 1)))
    >>> dwte[:, 0].tolist(), dwpe[:, 0].tolist()
    ([1.0, 0.0, 2.0], [1.0, 1.0, 1.0, 0.0])
    """
    xp = namespace(dx)
    dwte = gradient(dwte, wte)
    dwpe = gradient(dwpe, wpe)
    if tokens.size == 0:
        return dwte, dwpe
    # dwpe_t = Σ_b dx_bt
    dwpe[:tokens.shape[1]] += dx.sum(0)
    # dwte_v = Σ of dx where the token is v: sorted by token, equal ones stand side by side
    rows = dx.reshape(-1, dx.shape[-1])
    if is_cupy(dx):  # CuPy has no reduceat; its add.at adds in any order
        xp.add.at(dwte, tokens.reshape(-1), rows)
        return dwte, dwpe
    order = tokens.reshape(-1).argsort(kind="stable")
    token = tokens.reshape(-1)[order]
    starts = xp.flatnonzero(xp.append(True, token[1:] != token[:-1]))
    rows = rows.take(order, axis=0, out=scratch(rows.shape, dx.dtype, dx), mode="clip")
    dwte[token[starts]] += xp.add.reduceat(rows, starts, axis=0)
    return dwte, dwpe
