"""Launches ``adamw.cu`` for ``llmlab.optim.adamw``, whose door has checked shapes and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmlab.arrays import Array, bfloat16, float16, float32, is_cupy, namespace
from llmlab.kernels import guards
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, cuda_type, null

_NORM_THREADS, _UPDATE_THREADS = 512, 256
_NORM_BLOCKS, _UPDATE_BLOCKS = 4, 3  # on a multiprocessor; all of a launch are on the GPU at once
_PACK = 4  # float32 elements in 16 bytes


def step(
    master: Array,
    grad: Array,
    m: Array,
    v: Array,
    compute: Array | None,
    updates: Array,
    lr: float | Array,
    inverse_scale: float | Array,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    clip: float,
    decay_end: int,
    *,
    norm: Array | None = None,
) -> Array:
    """Launches ``sum_squares``, then ``adamw_update``; returns ``norm``, all work still in the stream.

    All that is written needs to be contiguous. NotImplemented for a copy in a dtype without a kernel.
    """
    if compute is None or compute is master:
        T, compute = "float", None
    elif compute.dtype in (float32, bfloat16, float16):
        T = cuda_type(compute.dtype)
    else:
        return NotImplemented
    norm = guards.result("norm", norm, (1,), float32, like=master)
    written = {"master": master, "m": m, "v": v, "compute": compute, "updates": updates}
    for name, buffer in written.items():
        if buffer is not None and not buffer.flags.c_contiguous:
            raise ValueError(
                f"{name} is a view with strides {buffer.strides}; a kernel writes contiguous buffers only"
            )
    grad = guards.contiguous(grad)
    kernels, n = load("adamw"), master.size
    rate, scale = _scalar("lr", lr, master), _scalar("inverse_scale", inverse_scale, master)

    E = _PACK if _aligned(grad) else 1
    blocks = _blocks(n, _NORM_THREADS * E, _NORM_BLOCKS, master)
    partials = namespace(master).empty(blocks + 1, np.float64)  # and the number of this update
    sum_squares = kernels.get_function(f"sum_squares<{E}>")
    sum_squares((blocks,), (_NORM_THREADS,), (Out(partials), grad, updates, n))

    E = _PACK if _aligned(master, grad, m, v, compute) else 1
    update = kernels.get_function(f"adamw_update<{T}, {E}>")
    buffers = master, grad, m, v, null if compute is None else compute
    settings = float(beta1), float(beta2), float(eps), float(weight_decay), float(clip), int(decay_end)
    update(
        (_blocks(n, _UPDATE_THREADS * E, _UPDATE_BLOCKS, master),),
        (_UPDATE_THREADS,),
        (Out(norm), updates, *buffers, partials, blocks, *rate, *scale, *settings, n),
    )
    return norm


def _aligned(*buffers: Array | None) -> bool:
    """Whether each buffer starts where a pack of its elements may."""
    return all(guards.address(b) % (_PACK * b.itemsize) == 0 for b in buffers if b is not None)


def _blocks(n: int, elements: int, on_multiprocessor: int, like: Array) -> int:
    """Blocks that take ``elements`` of n at a time: no more than are on the GPU at once, and one at least."""
    most = guards.multiprocessors(like) * on_multiprocessor
    return max(1, min(most, guards.ceil_divide(n, elements)))


def _scalar(name: str, value: float | Array, like: Array) -> tuple[Any, float]:
    """A number as (null pointer, number), a number on the device as (its array, 0)."""
    if isinstance(value, np.generic | int | float):
        return null, float(value)
    if value.size != 1:
        raise ValueError(
            f"{name} has shape {value.shape}; it needs to be a number or an array of one element"
        )
    if is_cupy(like) and not is_cupy(value):
        return null, float(value.item())
    return namespace(value).asarray(value, float32).reshape(1), 0.0
