"""Launches ``softmax.cu`` for ``llmlab.ops.softmax``, whose guard has checked shapes and dtypes."""

from __future__ import annotations

from llmlab.arrays import Array
from llmlab.kernels import guards
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, template

_WARPS_PER_BLOCK = 4
_PACKS_PER_LANE = (1, 2, 4)  # the instantiations of the warp kernels; longer rows take a block
_KEPT_BYTES = 112 * 1024  # of a row, in shared memory: half of a multiprocessor's, so that two blocks fit


def forward(x: Array, *, y: Array | None = None) -> Array:
    y = guards.result("y", y, x.shape, x.dtype, like=x)
    if x.size == 0:
        return y
    _launch("softmax_forward", y, guards.contiguous(x))
    return y


def backward(dy: Array, y: Array, *, dx: Array | None = None) -> Array:
    dx = guards.result("dx", dx, y.shape, y.dtype, like=y)
    if y.size == 0:
        return dx
    _launch("softmax_backward", dx, guards.contiguous(dy), guards.contiguous(y))
    return dx


def _launch(name: str, result: Array, *inputs: Array) -> None:
    C = result.shape[-1] if result.ndim else 1
    N = result.size // C
    aligned = guards.packs(C, result, *inputs)
    per_pack = guards.PACK_BYTES // result.itemsize
    packs = guards.ceil_divide(C, per_pack) + (not aligned)  # a shifted row may touch one pack more
    for per_lane in _PACKS_PER_LANE:
        if packs <= 32 * per_lane:
            kernel = load("softmax").get_function(template(f"{name}_warp", result.dtype, per_lane, aligned))
            grid = guards.ceil_divide(N, _WARPS_PER_BLOCK)
            kernel((grid,), (32 * _WARPS_PER_BLOCK,), (Out(result), *inputs, N, C))
            return
    kept = min(packs, _KEPT_BYTES // (guards.PACK_BYTES * len(inputs)))
    threads = min(512, max(128, 32 * guards.ceil_divide(packs, 32 * 4)))
    kernel = load("softmax").get_function(template(f"{name}_block", result.dtype, aligned))
    shared_mem = kept * guards.PACK_BYTES * len(inputs)
    kernel((N,), (threads,), (Out(result), *inputs, C, kept), shared_mem=shared_mem)
