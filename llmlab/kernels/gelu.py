"""Launches ``gelu.cu`` for ``llmlab.ops.gelu``, whose guard has checked shapes and dtypes."""

from __future__ import annotations

from llmlab.arrays import Array, float32, namespace
from llmlab.kernels import column_sum, guards
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, null, template

_THREADS = 256
_FORWARD_ROWS = 8  # of a thread; blocks that end soon keep a GPU evenly busy
_LEAST_ROWS = 2  # of a thread in backward: its loads under way together (IN_FLIGHT in gelu.cu)
_MOST_GROUPS = 65535  # a grid's height
_BLOCKS_PER_MULTIPROCESSOR = 3  # in backward: as many as run at once, since each leaves partial sums of dbias


def forward(x: Array, bias: Array | None = None, *, y: Array | None = None) -> Array:
    """Launches ``gelu_forward``, the bias added on the way if there is one; returns y."""
    y = guards.result("y", y, x.shape, x.dtype, like=x)
    if x.size == 0:
        return y
    x, bias = guards.contiguous(x), guards.contiguous(bias)
    N, C = _rows(x)
    expression = template("gelu_forward", x.dtype, bias is not None, guards.packs(C, x, y, bias))
    tiles, block = _layout(x, C)
    grid = tiles, min(guards.ceil_divide(N, block[1] * _FORWARD_ROWS), _MOST_GROUPS)
    load("gelu").get_function(expression)(grid, block, (Out(y), x, null if bias is None else bias, N, C))
    return y


def backward(
    dy: Array, x: Array, bias: Array | None = None, *, dx: Array | None = None, dbias: Array | None = None
) -> tuple[Array, Array | None]:
    """Launches ``gelu_backward`` and, with a bias, the sum of its blocks' sums.

    Returns dx, and dbias in float32, added to what is given; None without a bias.
    """
    dx = guards.result("dx", dx, x.shape, x.dtype, like=x)
    if bias is not None and dbias is None:
        dbias = namespace(x).zeros(bias.shape, float32)
    if x.size == 0:
        return dx, dbias
    dy, x, bias = guards.contiguous(dy), guards.contiguous(x), guards.contiguous(bias)
    N, C = _rows(x)
    expression = template("gelu_backward", x.dtype, bias is not None, guards.packs(C, dy, x, dx, bias))
    tiles, block = _layout(x, C)
    resident = guards.multiprocessors(x) * _BLOCKS_PER_MULTIPROCESSOR
    groups = min(guards.ceil_divide(N, block[1] * _LEAST_ROWS), max(1, resident // tiles))
    grid = tiles, groups
    kernel = load("gelu").get_function(expression)
    if bias is None:
        kernel(grid, block, (Out(dx), null, dy, x, null, N, C))
        return dx, None
    partials = namespace(x).empty((groups, 1, C), float32)
    kernel(grid, block, (Out(dx), Out(partials), dy, x, bias, N, C))
    column_sum.add_partials(partials, dbias)
    return dx, dbias


def _rows(x: Array) -> tuple[int, int]:
    C = x.shape[-1] if x.ndim else 1
    return x.size // C, C


def _layout(x: Array, C: int) -> tuple[int, tuple[int, int]]:
    """Tiles that cover the columns, and a block of the width that leaves the fewest of them empty."""
    packs = guards.ceil_divide(C * x.itemsize, guards.PACK_BYTES)
    width = min((128, 64, 32), key=lambda width: guards.ceil_divide(packs, width) * width)
    return guards.ceil_divide(packs, width), (width, _THREADS // width)
