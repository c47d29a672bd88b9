"""LayerNorm: every row to mean 0 and variance 1, then a learnt scale and shift (Ba, Kiros, Hinton 2016).

    μ = 1/C Σ_c x_c        rstd = 1/√(1/C Σ_c (x_c - μ)² + ε)
    x̂ = (x - μ) rstd       y = weight · x̂ + bias

Backward, with dx̂ = dy · weight. Moving one x_c moves every x̂ of the row through μ and rstd; collecting the
three paths leaves dx̂ without its part along 1 and its part along x̂:

    dx = rstd (dx̂ - 1/C Σ dx̂ - x̂ · 1/C Σ dx̂ x̂)        dweight = Σ_n dy x̂        dbias = Σ_n dy
"""

from __future__ import annotations

import math

from llmlab.arrays import Array, namespace, scratch
from llmlab.kernels import accelerated
from llmlab.ops._precision import gradient, mixed_precision, result
from llmlab.ops._rows import column_sum, row_dot, row_sum
from llmlab.ops.check import between, checked

IN_PLACE = {"y": ("x",), "dx": ("dy",)}
"""Results that may be written over an argument, if nobody needs it any more."""


def _check_eps(eps: float = 1e-5, **_) -> None:
    between("eps", eps, 0, closed=True)


@checked(_check_eps, x="*N C", weight="C", bias="C", y="*N C", mean="sum *N", rstd="sum *N")
@accelerated("layernorm", "forward")
@mixed_precision("y")
def forward(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5,
    *, y: Array | None = None, mean: Array | None = None, rstd: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Normalise the rows of `x`: y = weight · (x - mean) · rstd + bias.

    x (..., C), weight (C,), bias (C,); returns y like x, which may be `x` itself, and mean and rstd of shape
    (...,) in the accumulation dtype, which backward needs.

    >>> import numpy as np
    >>> y, mean, rstd = forward(np.array([[1.0, 2.0, 3.0]]), np.ones(3), np.zeros(3))
    >>> y.round(4).tolist(), mean.tolist()
    ([[-1.2247, 0.0, 1.2247]], [2.0])
    """
    xp = namespace(x)
    C = x.shape[-1]
    y = result(y, x.shape, x)
    mean = result(mean, x.shape[:-1], x)
    rstd = result(rstd, x.shape[:-1], x)

    # μ = 1/C Σ x
    mean[...] = row_sum(x) / C
    # rstd = 1/√(1/C Σ (x - μ)² + ε)
    centred = _centre(x, mean, out=y)
    rstd[...] = 1 / xp.sqrt(row_dot(centred, centred) / C + float(eps))
    rstd[rstd == 0] = math.nan  # the squares overflowed: y would be the bias, whatever x is
    # y = weight · (x - μ) rstd + bias
    return _scale_and_shift(centred, rstd, weight, bias), mean, rstd


@checked(x="*N C", weight="C", bias="C", mean="sum *N", rstd="sum *N", y="*N C")
@accelerated("layernorm", "recompute")
@mixed_precision("y")
def recompute(
    x: Array, weight: Array, bias: Array, mean: Array, rstd: Array, *, y: Array | None = None,
) -> Array:
    """y again from what backward keeps: bit for bit what `forward` gave.

    >>> import numpy as np
    >>> x, weight, bias = np.array([[1.0, 2.0, 4.0]]), np.ones(3), np.zeros(3)
    >>> y, mean, rstd = forward(x, weight, bias)
    >>> bool((recompute(x, weight, bias, mean, rstd) == y).all())
    True
    """
    centred = _centre(x, mean, out=result(y, x.shape, x))
    return _scale_and_shift(centred, rstd, weight, bias)


def _centre(x: Array, mean: Array, out: Array) -> Array:
    """x - μ, less its own mean: what rounding took from a large μ would not be small beside x - μ."""
    centred = namespace(x).subtract(x, mean[..., None], out=out)
    centred -= row_sum(centred)[..., None] / x.shape[-1]
    return centred


def _scale_and_shift(centred: Array, rstd: Array, weight: Array, bias: Array) -> Array:
    """y = weight · (x - μ) rstd + bias, in place."""
    y = centred
    y *= rstd[..., None]
    y *= weight
    y += bias
    return y


@checked(dy="*N C", x="*N C", weight="C", mean="sum *N", rstd="sum *N",
         dx="*N C", dweight="sum C", dbias="sum C")
@accelerated("layernorm", "backward")
@mixed_precision("dx")
def backward(
    dy: Array, x: Array, weight: Array, mean: Array, rstd: Array,
    *, dx: Array | None = None, dweight: Array | None = None, dbias: Array | None = None,
) -> tuple[Array, Array, Array]:
    """From dy to dx = rstd (dx̂ - 1/C Σ dx̂ - x̂ · 1/C Σ dx̂ x̂), dweight = Σ dy x̂ and dbias = Σ dy.

    dy and x (..., C), weight (C,), mean and rstd (...,) as forward returned them; `dweight` and `dbias` given
    are added to. `dx` may be `dy` itself.

    >>> import numpy as np
    >>> x = np.array([[1.0, 2.0, 4.0]])
    >>> y, mean, rstd = forward(x, np.ones(3), np.zeros(3))
    >>> dx, dweight, dbias = backward(np.array([[1.0, 0.0, 0.0]]), x, np.ones(3), mean, rstd)
    >>> bool(abs(dx.sum()) < 1e-12), dbias.tolist()   # adding a constant to a row changes nothing
    (True, [1.0, 0.0, 0.0])
    """
    xp = namespace(x)
    C = x.shape[-1]
    dx = result(dx, x.shape, x)
    dweight = gradient(dweight, weight)
    dbias = gradient(dbias, weight)

    # x̂ = (x - μ) rstd
    xhat = _centre(x, mean, out=scratch(x.shape, x.dtype, x))
    xhat *= rstd[..., None]
    # dweight = Σ_n dy x̂,  dbias = Σ_n dy
    dy_xhat = xp.multiply(dy, xhat, out=scratch(x.shape, x.dtype, x))
    dweight += column_sum(dy_xhat)
    dbias += column_sum(dy)
    # dx = rstd (dx̂ - 1/C Σ dx̂ - x̂ · 1/C Σ dx̂ x̂),  dx̂ = dy · weight
    along_one = dy @ weight / C
    along_xhat = dy_xhat @ weight / C
    xp.multiply(dy, weight, out=dx)
    dx -= along_one[..., None]
    xhat *= along_xhat[..., None]
    dx -= xhat
    dx *= rstd[..., None]
    return dx, dweight, dbias
