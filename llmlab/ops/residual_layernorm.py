"""A residual connection and the LayerNorm that reads it, in one pass over memory.

    r = x + (branch + branch_bias)        y = LayerNorm(r)

r goes on along the residual stream and into the next branch, so two gradients arrive, and one leaves for both
sides of the sum:

    dx = dbranch = dr + LayerNorm'(dy)        dbranch_bias = Σ_n dbranch
"""

from __future__ import annotations

from llmlab.arrays import Array, namespace, scratch
from llmlab.kernels import accelerated
from llmlab.ops import layernorm
from llmlab.ops._precision import gradient, mixed_precision, result
from llmlab.ops._rows import column_sum
from llmlab.ops.check import between, checked

IN_PLACE = {"r": ("branch", "x"), "dx": ("dr", "dy")}
"""Results that may be written over an argument, if nobody needs it any more."""

SHARED = {"dbranch": "dx"}
"""Results that are equal, so that one buffer may serve both."""


def _check_eps(eps: float = 1e-5, **_) -> None:
    between("eps", eps, 0, closed=True)


@checked(_check_eps, x="*N C", branch="*N C", weight="C", bias="C", branch_bias="C",
         r="*N C", y="*N C", mean="sum *N", rstd="sum *N")
@accelerated("residual_layernorm", "forward")
def forward(
    x: Array, branch: Array, weight: Array, bias: Array, branch_bias: Array | None = None, eps: float = 1e-5,
    *, r: Array | None = None, y: Array | None = None, mean: Array | None = None, rstd: Array | None = None,
) -> tuple[Array, Array, Array, Array]:
    """r = x + (branch + branch_bias), y = LayerNorm(r).

    x and branch (..., C), weight, bias and branch_bias (C,); returns r and y like x, mean and rstd (...,).
    `r` may be `x` or `branch` itself. It is rounded to its dtype before LayerNorm reads it, so that
    backward and `recompute` see the same numbers.

    >>> import numpy as np
    >>> r, y, mean, rstd = forward(np.array([[1.0, 2.0]]), np.array([[0.0, 2.0]]), np.ones(2), np.zeros(2))
    >>> r.tolist(), y.round(3).tolist()
    ([[1.0, 4.0]], [[-1.0, 1.0]])
    """
    # r = x + (branch + branch_bias)
    r = _add(x, branch, branch_bias, r=r)
    # y = LayerNorm(r)
    y, mean, rstd = layernorm.forward.text(r, weight, bias, eps, y=y, mean=mean, rstd=rstd)
    return r, y, mean, rstd


@mixed_precision("r")
def _add(x: Array, branch: Array, branch_bias: Array | None, *, r: Array | None = None) -> Array:
    r = namespace(x).add(x, branch, out=result(r, x.shape, x))
    if branch_bias is not None:
        r += branch_bias
    return r


@checked(r="*N C", weight="C", bias="C", mean="sum *N", rstd="sum *N", y="*N C")
@accelerated("residual_layernorm", "recompute")
def recompute(
    r: Array, weight: Array, bias: Array, mean: Array, rstd: Array, *, y: Array | None = None,
) -> Array:
    """y = LayerNorm(r) again from what backward keeps: bit for bit what `forward` gave.

    >>> import numpy as np
    >>> r, y, mean, rstd = forward(np.array([[1.0, 2.0]]), np.array([[0.0, 2.0]]), np.ones(2), np.zeros(2))
    >>> bool((recompute(r, np.ones(2), np.zeros(2), mean, rstd) == y).all())
    True
    """
    return layernorm.recompute.text(r, weight, bias, mean, rstd, y=y)


@checked(dr="*N C", dy="*N C", r="*N C", weight="C", mean="sum *N", rstd="sum *N", branch_bias="C",
         dx="*N C", dbranch="*N C", dweight="sum C", dbias="sum C", dbranch_bias="sum C")
@accelerated("residual_layernorm", "backward")
@mixed_precision("dx", "dbranch")
def backward(
    dr: Array | None, dy: Array, r: Array, weight: Array, mean: Array, rstd: Array,
    branch_bias: Array | None = None,
    *, dx: Array | None = None, dbranch: Array | None = None, dweight: Array | None = None,
    dbias: Array | None = None, dbranch_bias: Array | None = None,
) -> tuple[Array, Array, Array, Array, Array | None]:
    """dx = dbranch = dr + LayerNorm'(dy); dweight and dbias as in LayerNorm; dbranch_bias = Σ dbranch.

    dr (..., C) is the gradient that arrives along the residual stream, or None if r is read by nothing else.
    dx and dbranch are equal, and one buffer may serve both: with none given, the same array is returned
    twice. `dx` may be `dr` or `dy` itself. Gradients of parameters given are added to; without a branch_bias,
    dbranch_bias is None.

    >>> import numpy as np
    >>> r, mean, rstd = np.array([[1.0, 4.0]]), np.array([2.5]), np.array([0.67])
    >>> dx, dbranch, *_ = backward(np.ones((1, 2)), np.zeros((1, 2)), r, np.ones(2), mean, rstd)
    >>> dx.tolist(), dx is dbranch
    ([[1.0, 1.0]], True)
    """
    dx = result(dx if dx is not None else dbranch, r.shape, r)
    # dx = dr + LayerNorm'(dy)
    dnorm = dx if dr is None else scratch(r.shape, r.dtype, r)
    _, dweight, dbias = layernorm.backward.text(
        dy, r, weight, mean, rstd, dx=dnorm, dweight=dweight, dbias=dbias)
    if dr is not None:
        namespace(r).add(dr, dnorm, out=dx)
    # dbranch = dx,  dbranch_bias = Σ_n dbranch
    if dbranch is None:
        dbranch = dx
    elif dbranch is not dx:
        dbranch[...] = dx
    if branch_bias is not None:
        dbranch_bias = gradient(dbranch_bias, branch_bias)
        dbranch_bias += column_sum(dbranch)
    return dx, dbranch, dweight, dbias, dbranch_bias
