"""GELU that leaves its slope behind, in the place of its argument: backward is then one product.

    u = x + bias        y = GELU(u)        slope = dy/du        dx = dy · slope        dbias = Σ_n dx

It keeps as much as `gelu`, whose numbers these are, and saves the second exponential. That is worth it on a
CPU, where exponentials are dear. A GPU waits for memory instead: there a second result written costs more
than it saves. Nor can y be computed again from the slope, so `gelu` is the op for checkpointing.
"""

from __future__ import annotations

from llmlab.arrays import Array, namespace, scratch
from llmlab.ops._precision import gradient, mixed_precision, result
from llmlab.ops._rows import by_rows, column_sum
from llmlab.ops.check import checked
from llmlab.ops.gelu import _matrix, _slope

IN_PLACE = {"slope": ("x",), "dx": ("dy",)}
"""Results that may be written over an argument, if nobody needs it any more."""


@checked(x="*N C", bias="C", y="*N C", slope="*N C")
@mixed_precision("y", "slope")
def forward(
    x: Array, bias: Array | None = None, *, y: Array | None = None, slope: Array | None = None,
) -> tuple[Array, Array]:
    """y = GELU(x + bias) and its slope.

    x (..., C), bias (C,) or None; returns y and slope like x. `slope` may be `x` itself.

    >>> import numpy as np
    >>> y, slope = forward(np.array([-9.0, 0.0, 1.0, 9.0]))
    >>> abs(y).round(4).tolist(), abs(slope).round(4).tolist()
    ([0.0, 0.0, 0.8412, 9.0], [0.0, 0.5, 1.083, 1.0])
    """
    y, slope = result(y, x.shape, x), result(slope, x.shape, x)

    def rows(x: Array, y: Array, slope: Array) -> None:
        xp = namespace(x)
        u = x if bias is None else xp.add(x, bias, out=scratch(x.shape, x.dtype, x))
        # y = u s = u / (1 + e)
        du, inverse = _slope(u)
        xp.divide(u, inverse, out=y)
        slope[...] = du

    by_rows(rows, _matrix(x), _matrix(y), _matrix(slope))
    return y, slope


@checked(dy="*N C", slope="*N C", bias="C", dx="*N C", dbias="sum C")
@mixed_precision("dx")
def backward(
    dy: Array, slope: Array, bias: Array | None = None,
    *, dx: Array | None = None, dbias: Array | None = None,
) -> tuple[Array, Array | None]:
    """dx = dy · slope and dbias = Σ dx.

    dy and slope (..., C), the slope as forward left it; `dbias` given is added to. Without a bias, dbias is
    None. `dx` may be `dy` itself.

    >>> import numpy as np
    >>> dx, dbias = backward(np.array([[2.0], [4.0]]), np.array([[0.5], [1.0]]), np.zeros(1))
    >>> dx.tolist(), dbias.tolist()
    ([[1.0], [4.0]], [5.0])
    """
    dx = namespace(dy).multiply(dy, slope, out=result(dx, dy.shape, dy))
    if bias is not None:
        dbias = gradient(dbias, bias)
        dbias += column_sum(dx)
    return dx, dbias
