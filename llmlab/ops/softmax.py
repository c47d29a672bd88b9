"""Softmax along the last axis.

    y_i = exp(x_i - m) / Σ_j exp(x_j - m)        m = max_j x_j

The shift by m cancels and keeps exp below 1. From ∂y_i/∂x_j = y_i (δ_ij - y_j):

    dx = y (dy - Σ_j dy_j y_j)
"""

from __future__ import annotations

from llmlab.arrays import Array, namespace
from llmlab.kernels import accelerated
from llmlab.ops._precision import mixed_precision, result
from llmlab.ops._rows import row_dot, row_sum
from llmlab.ops.check import checked

IN_PLACE = {"y": ("x",), "dx": ("dy",)}
"""Results that may be written over an argument, if nobody needs it any more."""


@checked(x="*N C", y="*N C")
@accelerated("softmax", "forward")
@mixed_precision("y")
def forward(x: Array, *, y: Array | None = None) -> Array:
    """y = exp(x - m) / Σ exp(x - m), m the maximum of each row.

    x (..., C), C at least 1; returns y like x. `y` may be `x` itself.

    >>> import numpy as np
    >>> forward(np.array([0.0, np.log(3.0)])).round(4).tolist()
    [0.25, 0.75]
    """
    xp = namespace(x)
    y = result(y, x.shape, x)
    # y = exp(x - m) / Σ exp(x - m)
    xp.subtract(x, x.max(-1, keepdims=True), out=y)
    xp.exp(y, out=y)
    y /= row_sum(y)[..., None]
    return y


@checked(dy="*N C", y="*N C", dx="*N C")
@accelerated("softmax", "backward")
@mixed_precision("dx")
def backward(dy: Array, y: Array, *, dx: Array | None = None) -> Array:
    """dx = y (dy - Σ dy y).

    dy and y (..., C), y as forward returned it; returns dx like y. `dx` may be `dy` itself.

    >>> import numpy as np
    >>> backward(np.array([1.0, 0.0]), np.array([0.25, 0.75])).tolist()
    [0.1875, -0.1875]
    """
    dx = result(dx, y.shape, y)
    # dx = y (dy - Σ dy y)
    namespace(y).subtract(dy, row_dot(dy, y)[..., None], out=dx)
    dx *= y
    return dx
