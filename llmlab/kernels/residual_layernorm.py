"""Launches ``residual_layernorm.cu`` for ``llmlab.ops.residual_layernorm``, whose door has checked."""

from __future__ import annotations

from llmlab.arrays import Array, float32
from llmlab.kernels import guards, layernorm
from llmlab.kernels.signature import Out, null


def forward(
    x: Array,
    branch: Array,
    weight: Array,
    bias: Array,
    branch_bias: Array | None = None,
    eps: float = 1e-5,
    *,
    r: Array | None = None,
    y: Array | None = None,
    mean: Array | None = None,
    rstd: Array | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Launches ``residual_layernorm_forward``, or the wide one for rows that registers do not hold.

    Returns r, y, and mean and rstd in float32.
    """
    r = guards.result("r", r, x.shape, x.dtype, like=x)
    y = guards.result("y", y, x.shape, x.dtype, like=x)
    mean = guards.result("mean", mean, x.shape[:-1], float32, like=x)
    rstd = guards.result("rstd", rstd, x.shape[:-1], float32, like=x)
    if x.size:
        x, branch, weight, bias, branch_bias = map(guards.contiguous, (x, branch, weight, bias, branch_bias))
        results = (Out(array) for array in (r, y, mean, rstd))
        args = (*results, x, branch, weight, bias, null if branch_bias is None else branch_bias)
        layernorm.forward_rows(
            "residual_layernorm",
            "residual_layernorm_forward",
            x,
            args,
            eps,
            r,
            y,
            x,
            branch,
            weight,
            bias,
            branch_bias,
        )
    return r, y, mean, rstd


def recompute(
    r: Array,
    weight: Array,
    bias: Array,
    mean: Array,
    rstd: Array,
    *,
    y: Array | None = None,
) -> Array:
    """Launches LayerNorm's kernel on r; returns y as forward wrote it, bit for bit."""
    return layernorm.recompute(r, weight, bias, mean, rstd, y=y)


def backward(
    dr: Array | None,
    dy: Array,
    r: Array,
    weight: Array,
    mean: Array,
    rstd: Array,
    branch_bias: Array | None = None,
    *,
    dx: Array | None = None,
    dbranch: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
    dbranch_bias: Array | None = None,
) -> tuple[Array, Array, Array, Array, Array | None]:
    """Launches `layernorm.backward_rows`, which adds dr on its way, and sums dx for the bias if there is one.

    dx and dbranch are one gradient: one array, unless two are given. The gradients of parameters are float32,
    added to what is given; dbranch_bias is None without a bias.
    """
    dx = guards.result("dx", dx if dx is not None else dbranch, r.shape, r.dtype, like=r)
    dweight = layernorm.gradient(dweight, weight)
    dbias = layernorm.gradient(dbias, weight)
    gradients = [dweight, dbias]
    if branch_bias is not None:
        dbranch_bias = layernorm.gradient(dbranch_bias, branch_bias)
        gradients.append(dbranch_bias)
    if r.size:
        dr, dy, r, weight, mean, rstd = map(guards.contiguous, (dr, dy, r, weight, mean, rstd))
        layernorm.backward_rows(dx, dr, dy, r, weight, mean, rstd, gradients)
    if dbranch is None:
        dbranch = dx
    elif dbranch is not dx:
        dbranch[...] = dx
    return dx, dbranch, dweight, dbias, dbranch_bias
