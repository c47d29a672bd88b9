"""Launches ``adamw.cu`` for ``llmlab.optim.adamw``, whose doors have checked shapes and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmlab.arrays import Array, bfloat16, float16, float32, is_cupy, namespace
from llmlab.kernels import guards
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, cuda_type, null

_NORM_THREADS, _UPDATE_THREADS = 512, 256
_NORM_BLOCKS_PER_MULTIPROCESSOR = 4
_PACK = 4  # float32 elements in 16 bytes


def global_norm(grad: Array, inverse_scale: float | Array = 1.0, *, norm: Array | None = None) -> Array:
    norm = guards.result("norm", norm, (1,), float32, like=grad)
    grad = guards.contiguous(grad)
    E = _PACK if guards.address(grad) % guards.PACK_BYTES == 0 else 1
    most = guards.multiprocessors(grad) * _NORM_BLOCKS_PER_MULTIPROCESSOR
    blocks = max(1, min(most, guards.ceil_divide(grad.size, _NORM_THREADS * E)))
    partials = namespace(grad).empty(blocks, np.float64)
    kernels = load("adamw")
    kernels.get_function(f"sum_squares<{E}>")((blocks,), (_NORM_THREADS,), (Out(partials), grad, grad.size))
    finish = kernels.get_function("finish_norm")
    finish(
        (1,), (_NORM_THREADS,), (Out(norm), partials, blocks, *_scalar("inverse_scale", inverse_scale, grad))
    )
    return norm


def update(
    master: Array,
    grad: Array,
    m: Array,
    v: Array,
    compute: Array | None,
    norm: Array,
    step: Array,
    lr: float | Array,
    inverse_scale: float | Array,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    clip: float,
    decay_end: int,
) -> Any:
    if compute is None or compute is master:
        T, compute = "float", None
    elif compute.dtype in (float32, bfloat16, float16):
        T = cuda_type(compute.dtype)
    else:
        return NotImplemented
    for name, buffer in (("master", master), ("m", m), ("v", v), ("compute", compute), ("step", step)):
        if buffer is not None and not buffer.flags.c_contiguous:
            raise ValueError(
                f"{name} is a view with strides {buffer.strides}; a kernel writes contiguous buffers only"
            )
    if step.dtype != np.int64 or step.shape != (1,):
        raise TypeError(f"step is {step.dtype} of shape {step.shape}; it needs to be int64 of shape (1,)")
    grad = guards.contiguous(grad)
    kernels, n = load("adamw"), master.size
    shared = namespace(master).empty(5, float32)
    prepare = kernels.get_function("prepare_update")
    prepare(
        (1,),
        (1,),
        (
            Out(shared),
            step,
            norm,
            *_scalar("lr", lr, master),
            *_scalar("inverse_scale", inverse_scale, master),
            float(beta1),
            float(beta2),
            float(weight_decay),
            float(clip),
        ),
    )
    if n == 0:
        return None
    aligned = all(
        guards.address(b) % (_PACK * b.itemsize) == 0 for b in (master, grad, m, v, compute) if b is not None
    )
    E = _PACK if aligned else 1
    blocks = min(guards.ceil_divide(n, _UPDATE_THREADS * E), 2**31 - 1)
    kernel = kernels.get_function(f"adamw_update<{T}, {E}>")
    kernel(
        (blocks,),
        (_UPDATE_THREADS,),
        (
            master,
            grad,
            m,
            v,
            null if compute is None else compute,
            shared,
            beta1,
            1.0 - beta1,
            beta2,
            1.0 - beta2,
            eps,
            int(decay_end),
            n,
        ),
    )
    return None


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
