"""Launches ``gelu.cu`` for ``llmlab.ops.gelu``, whose guard has checked shapes and dtypes."""

from __future__ import annotations

import math

from llmlab.arrays import Array, float32, namespace
from llmlab.kernels import guards
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, null, template

_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8


def forward(x: Array, bias: Array | None = None, *, y: Array | None = None) -> Array:
    y = guards.result("y", y, x.shape, x.dtype, like=x)
    if x.size == 0:
        return y
    x, bias = guards.contiguous(x), guards.contiguous(bias)
    N, C = _rows(x)
    packed = guards.packs(C, x, y)
    grid, block = _layout(x, N, C)
    kernel = load("gelu").get_function(template("gelu_forward", x.dtype, bias is not None, packed))
    kernel(grid, block, (Out(y), x, null if bias is None else bias, N, C))
    return y


def backward(
    dy: Array, x: Array, bias: Array | None = None, *, dx: Array | None = None, dbias: Array | None = None
) -> tuple[Array, Array | None]:
    xp = namespace(x)
    dx = guards.result("dx", dx, x.shape, x.dtype, like=x)
    if bias is not None and dbias is None:
        dbias = xp.zeros(bias.shape, float32)
    if x.size == 0:
        return dx, dbias
    dy, x, bias = guards.contiguous(dy), guards.contiguous(x), guards.contiguous(bias)
    N, C = _rows(x)
    packed = guards.packs(C, dy, x, dx)
    grid, block = _layout(x, N, C)
    part = null if bias is None else Out(xp.empty((grid[1], C), float32))
    kernel = load("gelu").get_function(template("gelu_backward", x.dtype, bias is not None, packed))
    kernel(grid, block, (Out(dx), part, dy, x, null if bias is None else bias, N, C))
    if bias is not None:
        add = load("gelu").get_function("gelu_add_dbias")
        add((guards.ceil_divide(C, 32),), (32, 32), (dbias, part.array, grid[1], C))
    return dx, dbias


def _rows(x: Array) -> tuple[int, int]:
    C = x.shape[-1] if x.ndim else 1
    return x.size // C, C


def _layout(x: Array, N: int, C: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid and block: the width that wastes the fewest columns, and as many blocks as run at once."""
    columns_per_thread = guards.PACK_BYTES // x.itemsize
    width = min((128, 64, 32), key=lambda width: -(-C // (width * columns_per_thread)) * width)
    height = _THREADS // width
    tiles = guards.ceil_divide(C, width * columns_per_thread)
    blocks = guards.multiprocessors(x) * _BLOCKS_PER_MULTIPROCESSOR
    groups = min(guards.ceil_divide(N, height), max(1, math.ceil(blocks / tiles)), 65535)
    return (tiles, groups), (width, height)
