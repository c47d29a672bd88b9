"""The linear layer: y = x weightᵀ + bias.

One row of weight holds the coefficients of one output, as in PyTorch. From dy, by the sum over what each
argument touches:

    dx = dy weight        dweight = dyᵀ x  (Σ over rows)        dbias = Σ_n dy
"""

from __future__ import annotations

from llmlab.arrays import Array, namespace, scratch
from llmlab.kernels import accelerated
from llmlab.ops._precision import gradient, mixed_precision, result
from llmlab.ops._rows import column_sum
from llmlab.ops.check import checked


def _rows(x: Array) -> Array:
    """x (..., C) as a matrix (N, C): one large product is faster than many small ones."""
    return x.reshape(-1, x.shape[-1])


@checked(x="*N C", weight="C_out C", bias="C_out", y="*N C_out")
@accelerated("linear", "forward")
@mixed_precision("y")
def forward(x: Array, weight: Array, bias: Array | None = None, *, y: Array | None = None) -> Array:
    """y = x weightᵀ + bias.

    x (..., C), weight (C_out, C), bias (C_out,) or None; returns y (..., C_out).

    >>> import numpy as np
    >>> forward(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])).tolist()
    [[1.0, 2.0, 3.0]]
    """
    y = result(y, (*x.shape[:-1], len(weight)), x)
    # y = x weightᵀ + bias
    namespace(x).matmul(_rows(x), weight.T, out=_rows(y))
    if bias is not None:
        y += bias
    return y


@checked(dy="*N C_out", x="*N C", weight="C_out C", bias="C_out",
         dx="*N C", dweight="sum C_out C", dbias="sum C_out")
@accelerated("linear", "backward")
@mixed_precision("dx")
def backward(
    dy: Array, x: Array, weight: Array, bias: Array | None = None,
    *, dx: Array | None = None, dweight: Array | None = None, dbias: Array | None = None,
) -> tuple[Array, Array, Array | None]:
    """dx = dy weight, dweight = dyᵀ x, dbias = Σ dy.

    dy (..., C_out), x (..., C), weight (C_out, C); `dweight` and `dbias` given are added to. Without a bias,
    dbias is None.

    >>> import numpy as np
    >>> dx, dweight, dbias = backward(np.array([[1.0]]), np.array([[2.0, 3.0]]), np.array([[5.0, 7.0]]))
    >>> dx.tolist(), dweight.tolist(), dbias
    ([[5.0, 7.0]], [[2.0, 3.0]], None)
    """
    xp = namespace(x)
    dx = result(dx, x.shape, x)
    dweight = gradient(dweight, weight)
    # dweight = dyᵀ x, first, as dx may be written over x
    dweight += xp.matmul(_rows(dy).T, _rows(x), out=scratch(weight.shape, dweight.dtype, x))
    # dx = dy weight
    xp.matmul(_rows(dy), weight, out=_rows(dx))
    # dbias = Σ_n dy
    if bias is not None:
        dbias = gradient(dbias, bias)
        dbias += column_sum(dy)
    return dx, dweight, dbias
