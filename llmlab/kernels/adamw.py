"""Launches ``adamw.cu`` for ``llmlab.optim.adamw``, whose door has checked shapes and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmlab.arrays import Array, bfloat16, float16, float32, is_cupy, namespace
from llmlab.kernels import guards
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, cuda_type, null

_NORM_THREADS, _UPDATE_THREADS = 1024, 256
_PACK = 4  # float32 elements in 16 bytes
_UPDATE = 3  # numbers that sum_squares leaves behind its sums


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
    rate, scale = _scalar(lr, master), _scalar(inverse_scale, master)

    E = _PACK if _aligned(grad) else 1
    blocks = min(guards.multiprocessors(master), _blocks(n, _NORM_THREADS * E))
    partials = namespace(master).empty(blocks + _UPDATE, np.float64)
    sum_squares = kernels.get_function(f"sum_squares<{E}>")
    betas = float(beta1), float(beta2)
    sum_squares((blocks,), (_NORM_THREADS,), (Out(partials), grad, updates, *betas, n))

    E = _PACK if _aligned(master, grad, m, v, compute) else 1
    update = kernels.get_function(f"adamw_update<{T}, {E}>")
    buffers = master, grad, m, v, null if compute is None else compute
    settings = *betas, float(eps), float(weight_decay), float(clip), int(decay_end)
    update(
        (_blocks(n, _UPDATE_THREADS * E),),
        (_UPDATE_THREADS,),
        (Out(norm), updates, *buffers, partials, blocks, *rate, *scale, *settings, n),
    )
    return norm


def _aligned(*buffers: Array | None) -> bool:
    """Whether each buffer starts where a pack of its elements may."""
    return all(guards.address(b) % (_PACK * b.itemsize) == 0 for b in buffers if b is not None)


def _blocks(n: int, elements: int) -> int:
    """Blocks of which each takes that many of n elements: one at least, which has the norm to write."""
    return max(1, guards.ceil_divide(n, elements))


def _scalar(value: float | Array, like: Array) -> tuple[Any, float]:
    """A number as (null pointer, number), a number on the device as (its array, 0)."""
    if isinstance(value, np.generic | int | float):
        return null, float(value)
    if is_cupy(like) and not is_cupy(value):
        return null, float(value.item())
    return namespace(value).asarray(value, float32).reshape(1), 0.0
