"""GELU in the tanh form of GPT-2 (Hendrycks and Gimpel 2016), with the bias of the layer before it.

    u = x + bias        t = tanh(√(2/π) (u + 0.044715 u³))        y = ½ u (1 + t)

By the product rule, with dt/du = (1 - t²) √(2/π) (1 + 3 · 0.044715 u²):

    dx = dy · ½ (1 + t + u (1 - t²) √(2/π) (1 + 3 · 0.044715 u²))        dbias = Σ_n dx

Backward recomputes t from x: it keeps one tensor instead of two.
"""

from __future__ import annotations

import math

from llmlab.arrays import Array, namespace, scratch
from llmlab.kernels import accelerated
from llmlab.ops._check import checked
from llmlab.ops._precision import gradient, mixed_precision, result
from llmlab.ops._rows import column_sum

IN_PLACE = {"y": ("x",), "dx": ("dy",)}
"""Results that may be written over an argument, if nobody needs it any more."""

_A = math.sqrt(2 / math.pi)
_B = _A * 0.044715


def _tanh(u: Array, out: Array) -> Array:
    """t = tanh(a u + b u³) = tanh(u (a + b u²)): products, because a power costs 500 times as much."""
    xp = namespace(u)
    t = xp.multiply(u, u, out=out)
    t *= _B
    t += _A
    t *= u
    return xp.tanh(t, out=t)


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
    u = x if bias is None else namespace(x).add(x, bias, out=scratch(x.shape, x.dtype, x))
    # y = ½ u (1 + t)
    t = _tanh(u, out=scratch(x.shape, x.dtype, x))
    t += 1
    t *= 0.5
    return namespace(x).multiply(u, t, out=y)


@checked(dy="*N C", x="*N C", bias="C", dx="*N C", dbias="sum C")
@accelerated("gelu", "backward")
@mixed_precision("dx")
def backward(
    dy: Array, x: Array, bias: Array | None = None, *, dx: Array | None = None, dbias: Array | None = None,
) -> tuple[Array, Array | None]:
    """dx = dy · ½ (1 + t + u (1 - t²) √(2/π) (1 + 3 · 0.044715 u²)) and dbias = Σ dx.

    dy and x (..., C), x the pre-activation; `dbias` given is added to. Without a bias, dbias is None.
    `dx` may be `dy` itself.

    >>> import numpy as np
    >>> dx, dbias = backward(np.ones(3), np.array([-9.0, 0.0, 9.0]))
    >>> abs(dx).round(6).tolist(), dbias
    ([0.0, 0.5, 1.0], None)
    """
    xp = namespace(x)
    dx = result(dx, x.shape, x)
    u = x if bias is None else xp.add(x, bias, out=scratch(x.shape, x.dtype, x))
    t = _tanh(u, out=scratch(x.shape, x.dtype, x))
    # slope = u (1 - t²) (a + 3 b u²)
    slope = xp.multiply(u, u, out=scratch(x.shape, x.dtype, x))
    slope *= 3 * _B
    slope += _A
    slope *= u
    square = xp.multiply(t, t, out=scratch(x.shape, x.dtype, x))
    xp.subtract(1, square, out=square)
    slope *= square
    # dx = dy · ½ (1 + t + slope)
    slope += t
    slope += 1
    slope *= 0.5
    xp.multiply(dy, slope, out=dx)
    # dbias = Σ_n dx
    if bias is not None:
        dbias = gradient(dbias, bias)
        dbias += column_sum(dx)
    return dx, dbias
