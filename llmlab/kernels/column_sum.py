"""Launches ``column_sum.cu``: sums over rows, added to float32 gradients of parameters in a fixed order."""

from __future__ import annotations

from llmlab.arrays import Array, float32, namespace
from llmlab.kernels import guards, row
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, cuda_type, null

_ROWS = 8  # of threads in a block
_BLOCKS_PER_MULTIPROCESSOR = 4


def column_sum(gradient: Array, x: Array) -> None:
    """gradient[c] += the sum over n of x[n, c], for x (N, C) contiguous; gradient (C,) float32."""
    N, C = x.shape
    if x.size == 0:
        return
    E = row.pack_size(C, x)
    tiles = guards.ceil_divide(C, row.WARP * E)
    blocks = guards.multiprocessors(x) * _BLOCKS_PER_MULTIPROCESSOR
    groups = min(guards.ceil_divide(N, _ROWS), guards.ceil_divide(blocks, tiles), 65535)
    partials = namespace(x).empty((groups, 1, C), float32)
    kernel = load("column_sum").get_function(f"column_sums<{cuda_type(x.dtype)}, {E}>")
    kernel((tiles, groups), (row.WARP, _ROWS), (Out(partials), x, N, C))
    add_partials(partials, gradient)


def add_partials(partials: Array, *gradients: Array) -> None:
    """gradients[i][c] += the sum over p of partials[p, i, c], for partials (P, up to 3, C)."""
    P, S, C = partials.shape
    kernel = load("column_sum").get_function("add_partials")
    pointers = (*gradients, null, null)[:3]
    kernel((guards.ceil_divide(C, row.WARP), S), (row.WARP, row.WARP), (*pointers, partials, P, S, C))
