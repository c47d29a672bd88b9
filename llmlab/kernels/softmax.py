"""Launches ``softmax.cu`` for ``llmlab.ops.softmax``, whose guard has checked shapes and dtypes."""

from __future__ import annotations

from llmlab.arrays import Array
from llmlab.kernels import guards, row
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, template

_WARP = 32
_ROWS_PER_BLOCK = 2  # where a warp takes a row
_MOST_PACKS = 4  # that a thread holds in registers
_MOST_THREADS = 512  # so that each may have 128 registers
_LONG_THREADS = 1024
_STATIC_SHARED = 256  # bytes of a long row's block: where its warps leave a maximum and a sum


def forward(x: Array, *, y: Array | None = None) -> Array:
    """Launches ``softmax_forward``, or the long one for rows that registers do not hold; returns y."""
    y = guards.result("y", y, x.shape, x.dtype, like=x)
    if x.size:
        _launch("softmax_forward", y, guards.contiguous(x))
    return y


def backward(dy: Array, y: Array, *, dx: Array | None = None) -> Array:
    """Launches ``softmax_backward``, or the long one; returns dx."""
    dx = guards.result("dx", dx, y.shape, y.dtype, like=y)
    if y.size:
        _launch("softmax_backward", dx, guards.contiguous(dy), guards.contiguous(y))
    return dx


def _launch(name: str, result: Array, *inputs: Array) -> None:
    C = result.shape[-1] if result.ndim else 1
    N = result.size // C
    aligned = guards.packs(C, result, *inputs)
    packs = guards.ceil_divide(C * result.itemsize, guards.PACK_BYTES) + (not aligned)  # one more if shifted
    packs_per_thread, threads = _team(packs)
    if threads > _MOST_THREADS:
        kept = _kept(packs, len(inputs), result)
        shared_mem = kept * guards.PACK_BYTES * len(inputs)
        kernel = load("softmax").get_function(template(f"{name}_long", result.dtype, aligned))
        kernel((N,), (_LONG_THREADS,), (Out(result), *inputs, C, kept), shared_mem=shared_mem)
        return
    block_a_row = threads > _WARP
    rows_per_block = 1 if block_a_row else _ROWS_PER_BLOCK
    grid, block = guards.ceil_divide(N, rows_per_block), threads * rows_per_block
    expression = template(name, result.dtype, packs_per_thread, aligned, block_a_row)
    load("softmax").get_function(expression)((grid,), (block,), (Out(result), *inputs, N, C))


def _kept(packs: int, rows: int, like: Array) -> int:
    """How many packs of each long row of a block stay in shared memory; the others are read again.

    All of them wherever one block may have so much, although it then has its multiprocessor to itself: two
    rows of 50,304 in bfloat16 go at the speed of a copy on an H200, and at three quarters of it if they are
    halved for two blocks. What is too long for that is shared out between two.
    """
    whole, half = (row.shared_limit(like, blocks) - _STATIC_SHARED for blocks in (1, 2))
    pack_bytes = guards.PACK_BYTES * rows
    return packs if packs * pack_bytes <= whole else half // pack_bytes


def _team(packs: int) -> tuple[int, int]:
    """Packs a thread, threads a row: a warp if that is enough, else what leaves the fewest places empty."""
    if packs <= _WARP * _MOST_PACKS:
        return guards.ceil_divide(packs, _WARP), _WARP
    teams = [(each, _WARP * guards.ceil_divide(packs, _WARP * each)) for each in range(_MOST_PACKS, 1, -1)]
    return min(teams, key=lambda team: team[0] * team[1])
