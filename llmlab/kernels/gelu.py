"""Launches ``gelu.cu`` for ``llmlab.ops.gelu``, whose guard has checked shapes and dtypes."""

from __future__ import annotations

from llmlab.arrays import Array, float32, namespace
from llmlab.kernels import column_sum, guards
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, null, template

_THREADS = 256
_FORWARD_ROWS = 16  # of a thread; blocks that end soon keep a GPU evenly busy
_BACKWARD_ROWS = 64  # more, since each block leaves partial sums of dbias


def forward(x: Array, bias: Array | None = None, *, y: Array | None = None) -> Array:
    y = guards.result("y", y, x.shape, x.dtype, like=x)
    if x.size == 0:
        return y
    x, bias = guards.contiguous(x), guards.contiguous(bias)
    N, C = _rows(x)
    expression = template("gelu_forward", x.dtype, bias is not None, guards.packs(C, x, y, bias))
    grid, block = _layout(x, N, C, _FORWARD_ROWS)
    load("gelu").get_function(expression)(grid, block, (Out(y), x, null if bias is None else bias, N, C))
    return y


def backward(
    dy: Array, x: Array, bias: Array | None = None, *, dx: Array | None = None, dbias: Array | None = None
) -> tuple[Array, Array | None]:
    dx = guards.result("dx", dx, x.shape, x.dtype, like=x)
    if bias is not None and dbias is None:
        dbias = namespace(x).zeros(bias.shape, float32)
    if x.size == 0:
        return dx, dbias
    dy, x, bias = guards.contiguous(dy), guards.contiguous(x), guards.contiguous(bias)
    N, C = _rows(x)
    expression = template("gelu_backward", x.dtype, bias is not None, guards.packs(C, dy, x, dx, bias))
    grid, block = _layout(x, N, C, _BACKWARD_ROWS)
    kernel = load("gelu").get_function(expression)
    if bias is None:
        kernel(grid, block, (Out(dx), null, dy, x, null, N, C))
        return dx, None
    partials = namespace(x).empty((grid[1], 1, C), float32)
    kernel(grid, block, (Out(dx), Out(partials), dy, x, bias, N, C))
    column_sum.add_partials(partials, dbias)
    return dx, dbias


def _rows(x: Array) -> tuple[int, int]:
    C = x.shape[-1] if x.ndim else 1
    return x.size // C, C


def _layout(x: Array, N: int, C: int, rows: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid and block for threads of ``rows`` rows each, of the width that leaves the fewest columns empty."""
    packs = guards.ceil_divide(C * x.itemsize, guards.PACK_BYTES)
    width = min((128, 64, 32), key=lambda width: guards.ceil_divide(packs, width) * width)
    height = _THREADS // width
    tiles = guards.ceil_divide(packs, width)
    return (tiles, min(guards.ceil_divide(N, height * rows), 65535)), (width, height)
