"""The linear layer for ``llmlab.ops.linear``: products by cuBLAS, bias and its gradient by our kernels."""

from __future__ import annotations

from llmlab.arrays import Array, is_cupy
from llmlab.kernels import cublas, cublaslt, guards, row
from llmlab.kernels.column_sum import column_sum
from llmlab.kernels.layernorm import gradient
from llmlab.kernels.loader import load
from llmlab.kernels.signature import cuda_type

_ROWS = 8  # of threads in a block
_BLOCKS_PER_MULTIPROCESSOR = 8


def forward(x: Array, weight: Array, bias: Array | None = None, *, y: Array | None = None) -> Array:
    """y (..., C_out): one product, with the bias in its epilogue where cuBLASLt can."""
    C_out, C = weight.shape
    y = guards.result("y", y, (*x.shape[:-1], C_out), x.dtype, like=x)
    if y.size == 0:
        return y
    x, weight, rows = guards.contiguous(x).reshape(-1, C), guards.contiguous(weight), y.reshape(-1, C_out)
    # y = x weightᵀ + bias
    if bias is None:
        cublas.product(x, weight, rows, transpose_b=True)
        return y
    bias = guards.contiguous(bias)
    if not (is_cupy(x) and cublaslt.linear(x, weight, bias, rows)):
        cublas.product(x, weight, rows, transpose_b=True)
        _add_bias(rows, bias)
    return y


def backward(
    dy: Array,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
) -> tuple[Array, Array, Array | None]:
    """dx like x; dweight and dbias in float32, added to where given, by the product itself. dx may be x."""
    C_out, C = weight.shape
    dx = guards.result("dx", dx, x.shape, x.dtype, like=x)
    dweight = gradient(dweight, weight)
    if bias is not None:
        dbias = gradient(dbias, bias)
    if dy.size == 0:
        dx[...] = 0
        return dx, dweight, dbias
    dy, x = guards.contiguous(dy).reshape(-1, C_out), guards.contiguous(x).reshape(-1, C)
    # the gradients first: dx may be written over x
    if bias is not None:
        column_sum(dbias, dy)
    # dweight += dyᵀ x
    cublas.product(dy, x, dweight, transpose_a=True, add=True)
    # dx = dy weight
    cublas.product(dy, guards.contiguous(weight), dx.reshape(-1, C))
    return dx, dweight, dbias


def _add_bias(y: Array, bias: Array) -> None:
    N, C = y.shape
    E = row.pack_size(C, y, bias)
    tiles = guards.ceil_divide(C, row.WARP * E)
    blocks = guards.multiprocessors(y) * _BLOCKS_PER_MULTIPROCESSOR
    groups = min(guards.ceil_divide(N, _ROWS), guards.ceil_divide(blocks, tiles), 65535)
    kernel = load("linear").get_function(f"add_bias<{cuda_type(y.dtype)}, {E}>")
    kernel((tiles, groups), (row.WARP, _ROWS), (y, bias, N, C))
