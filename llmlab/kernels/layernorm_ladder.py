"""Launches ``layernorm_ladder.cu``, the teaching kernels of the chapter on LayerNorm, one rung a function.

Rows x (N, C), with the arguments and results of ``llmlab.ops.layernorm``, in float32, bfloat16 or float16.
They run where the arrays are: CuPy arrays on a GPU, NumPy arrays emulated. `text` is the CUDA text to
compile, for trying out a changed one. Training uses ``layernorm.cu``, which takes any width and address.
"""

from __future__ import annotations

import functools

from llmlab.arrays import Array, float32, namespace
from llmlab.kernels import guards, source
from llmlab.kernels.column_sum import add_partials
from llmlab.kernels.rawmodule import Kernel, RawModule
from llmlab.kernels.signature import Out, cuda_type

FILE = "layernorm_ladder.cu"
WARP = 32
THREADS = 256
ROWS = THREADS // WARP  # of a block in which each warp takes one
IN_PACKS = ("register_forward", "fused_backward")
TEXT = source.read(FILE)
BLOCKS_A_MULTIPROCESSOR = 2  # of fused_backward: as many as its registers let run at once


def thread_forward(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5, *, text: str = TEXT
) -> tuple[Array, Array, Array]:
    """Rung 1: a thread a row."""
    return _forward("thread_forward", 64, 64, x, weight, bias, eps, text)


def warp_forward(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5, *, text: str = TEXT
) -> tuple[Array, Array, Array]:
    """Rung 2: a warp a row, sums by shuffles."""
    return _forward("warp_forward", THREADS, ROWS, x, weight, bias, eps, text)


def register_forward(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5, *, text: str = TEXT
) -> tuple[Array, Array, Array]:
    """Rung 3: packs of 16 bytes, the row in registers."""
    return _forward("register_forward", THREADS, ROWS, x, weight, bias, eps, text)


def separate_backward(
    dy: Array, x: Array, weight: Array, mean: Array, rstd: Array, *, text: str = TEXT
) -> tuple[Array, Array, Array]:
    """Rung 4: dx by a warp a row; dweight and dbias by a second kernel, a thread a column."""
    N, C = x.shape
    xp = namespace(x)
    dx, dweight, dbias = xp.empty_like(x), xp.empty(C, float32), xp.empty(C, float32)
    blocks = guards.ceil_divide(N, ROWS)
    _kernel("warp_dx", x, text)((blocks,), (THREADS,), (Out(dx), dy, x, weight, mean, rstd, N, C))
    columns = guards.ceil_divide(C, WARP)
    arguments = (Out(dweight), Out(dbias), dy, x, mean, rstd, N, C)
    _kernel("column_sums_of_dy", x, text)((columns,), (WARP,), arguments)
    return dx, dweight, dbias


def fused_backward(
    dy: Array, x: Array, weight: Array, mean: Array, rstd: Array, *, text: str = TEXT
) -> tuple[Array, Array, Array]:
    """Rung 5: dx and the sums in one kernel; a second, small one adds what the blocks have summed."""
    N, C = x.shape
    xp = namespace(x)
    dx, dweight, dbias = xp.empty_like(x), xp.zeros(C, float32), xp.zeros(C, float32)
    most = guards.multiprocessors(x) * BLOCKS_A_MULTIPROCESSOR
    blocks = min(guards.ceil_divide(N, ROWS), most)
    partials = xp.empty((blocks, 2, C), float32)
    arguments = (Out(dx), Out(partials), dy, x, weight, mean, rstd, N, C)
    _kernel("fused_backward", x, text)((blocks,), (THREADS,), arguments, shared_mem=2 * C * 4)
    add_partials(partials, dweight, dbias)
    return dx, dweight, dbias


def _forward(name: str, threads: int, rows: int, x, weight, bias, eps: float, text: str):
    """Launch a forward rung whose blocks have `threads` threads and take `rows` rows."""
    N, C = x.shape
    xp = namespace(x)
    y, mean, rstd = xp.empty_like(x), xp.empty(N, float32), xp.empty(N, float32)
    arguments = (Out(y), Out(mean), Out(rstd), x, weight, bias, N, C, eps)
    _kernel(name, x, text)((guards.ceil_divide(N, rows),), (threads,), arguments)
    return y, mean, rstd


def _kernel(name: str, x: Array, text: str) -> Kernel:
    """The kernel for x's dtype and, if it works on packs, for x's width."""
    T, size = cuda_type(x.dtype), guards.PACK_BYTES // x.itemsize
    if name not in IN_PACKS:
        return _module(text).get_function(f"{name}<{T}>")
    if not guards.packs(x.shape[-1], x):
        raise ValueError(
            f"x has {x.shape[-1]} columns of {x.dtype}; {name} needs rows that start and end at a multiple "
            f"of {guards.PACK_BYTES} bytes: take a multiple of {size} columns"
        )
    return _module(text).get_function(f"{name}<{T}, {guards.ceil_divide(x.shape[-1], WARP * size)}>")


@functools.cache
def _module(text: str) -> RawModule:
    return RawModule(code=text, name=FILE)
