"""GELU in the tanh form of GPT-2 (Hendrycks and Gimpel 2016), with the bias of the layer before it.

    u = x + bias        y = ½ u (1 + tanh z)        z = √(2/π) (u + 0.044715 u³)

As ½ (1 + tanh z) = 1/(1 + exp(-2z)) = s, the logistic function, one exponential does for the tanh: y = u s.
From ds/dz = 2 s (1 - s), by the product rule,

    dx = dy · s (1 + u (1 - s) · 2 dz/du)        2 dz/du = 2 √(2/π) (1 + 3 · 0.044715 u²)
    dbias = Σ_n dx

Backward recomputes s from x: it keeps one tensor instead of two.
"""

from __future__ import annotations

import math

import numpy as np

from llmlab.arrays import Array, namespace, scratch
from llmlab.kernels import accelerated
from llmlab.ops._precision import gradient, mixed_precision, result
from llmlab.ops._rows import by_rows, column_sum
from llmlab.ops.check import checked

IN_PLACE = {"y": ("x",), "dx": ("dy",)}
"""Results that may be written over an argument, if nobody needs it any more."""

_A = 2 * math.sqrt(2 / math.pi)
_B = _A * 0.044715


def _matrix(x: Array) -> Array:
    """x (..., C) seen as (N, C)."""
    return x.reshape(-1, x.shape[-1])


def _exponential(u: Array) -> Array:
    """e = exp(-2z) = exp(-(a u + b u³)): by products, because a power costs a hundred times as much."""
    xp = namespace(u)
    e = xp.multiply(u, u, out=scratch(u.shape, u.dtype, u))
    e *= -_B
    e -= _A
    e *= u
    with np.errstate(over="ignore"):  # far to the left e is infinite, and s = 0 is right
        return xp.exp(e, out=e)


def _slope(u: Array) -> tuple[Array, Array]:
    """dy/du, and 1 + e beside it, from one exponential."""
    xp = namespace(u)
    # s = 1 / (1 + e),  1 - s = e / (1 + e): a difference would lose its digits where s rounds to 1
    e = _exponential(u)
    e.clip(0, 1e38, out=e)  # as inf / inf is no number; a minimum takes twice as long
    inverse = xp.add(e, 1, out=scratch(u.shape, u.dtype, u))
    one_minus_s = xp.divide(e, inverse, out=e)
    # slope = s (1 + u (1 - s) (a + 3 b u²))
    slope = xp.multiply(u, u, out=scratch(u.shape, u.dtype, u))
    slope *= 3 * _B
    slope += _A
    slope *= u
    slope *= one_minus_s
    slope += 1
    slope /= inverse
    return slope, inverse


@checked(x="*N C", bias="C", y="*N C")
@accelerated("gelu", "forward")
@mixed_precision("y")
def forward(x: Array, bias: Array | None = None, *, y: Array | None = None) -> Array:
    """y = ½ u (1 + tanh(√(2/π) (u + 0.044715 u³))), u = x + bias.

    x (..., C), bias (C,) or None; returns y like x.

    >>> import numpy as np
    >>> forward(np.array([-1.0, 0.0, 1.0])).round(4).tolist()
    [-0.1588, 0.0, 0.8412]
    """
    y = result(y, x.shape, x)

    def rows(x: Array, y: Array) -> None:
        xp = namespace(x)
        u = x if bias is None else xp.add(x, bias, out=y)
        # y = u s = u / (1 + e)
        e = _exponential(u)
        e += 1
        xp.divide(u, e, out=y)

    by_rows(rows, _matrix(x), _matrix(y))
    return y


@checked(dy="*N C", x="*N C", bias="C", dx="*N C", dbias="sum C")
@accelerated("gelu", "backward")
@mixed_precision("dx")
def backward(
    dy: Array, x: Array, bias: Array | None = None, *, dx: Array | None = None, dbias: Array | None = None,
) -> tuple[Array, Array | None]:
    """dx = dy · s (1 + u (1 - s) · 2 dz/du) and dbias = Σ dx.

    dy and x (..., C), x the pre-activation; `dbias` given is added to. Without a bias, dbias is None.
    `dx` may be `dy` itself.

    >>> import numpy as np
    >>> dx, dbias = backward(np.ones(3), np.array([-9.0, 0.0, 9.0]))
    >>> abs(dx).round(6).tolist(), dbias
    ([0.0, 0.5, 1.0], None)
    """
    dx = result(dx, x.shape, x)
    if bias is not None:
        dbias = gradient(dbias, bias)

    def rows(dy: Array, x: Array, dx: Array) -> None:
        xp = namespace(x)
        u = x if bias is None else xp.add(x, bias, out=scratch(x.shape, x.dtype, x))
        # dx = dy · slope,  dbias = Σ_n dx
        slope, _ = _slope(u)
        xp.multiply(dy, slope, out=dx)
        if bias is not None:
            dbias[...] += column_sum(dx)

    by_rows(rows, _matrix(dy), _matrix(x), _matrix(dx))
    return dx, dbias
