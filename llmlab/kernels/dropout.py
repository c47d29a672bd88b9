"""Launches ``dropout.cu`` for ``llmlab.ops.dropout``, whose door has checked shapes and dtypes."""

from __future__ import annotations

from llmlab.arrays import Array
from llmlab.kernels import guards
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, cuda_type, null

_THREADS = 256
_PER_THREAD = 4  # words of a block of the generator


def forward(
    x: Array,
    p: float,
    seed: int,
    step: int | Array,
    layer: int,
    offset: int = 0,
    *,
    y: Array | None = None,
) -> Array:
    """Launches ``dropout``, which draws the mask as it goes; returns y.

    A step on the device is read there, so that a recorded graph draws a new mask at each replay.
    """
    return _masked("y", y, x, p, seed, step, layer, offset)


def backward(
    dy: Array,
    p: float,
    seed: int,
    step: int | Array,
    layer: int,
    offset: int = 0,
    *,
    dx: Array | None = None,
) -> Array:
    """Launches ``dropout`` on dy: the same numbers draw the same mask. Returns dx."""
    return _masked("dx", dx, dy, p, seed, step, layer, offset)


def _masked(
    name: str, out: Array | None, x: Array, p: float, seed: int, step: int | Array, layer: int, offset: int
) -> Array:
    """x · keep / (1 - p)."""
    out = guards.result(name, out, x.shape, x.dtype, like=x)
    if x.size == 0:
        return out
    x = guards.contiguous(x)
    packed = offset % _PER_THREAD == 0 and all(
        guards.address(array) % (_PER_THREAD * array.itemsize) == 0 for array in (x, out)
    )
    step_at, step_value = _step(step, x)
    blocks = min(guards.ceil_divide(x.size + _PER_THREAD - 1, _THREADS * _PER_THREAD), 2**31 - 1)
    kernel = load("dropout").get_function(f"dropout<{cuda_type(x.dtype)}, {'true' if packed else 'false'}>")
    kernel(
        (blocks,),
        (_THREADS,),
        (
            Out(out),
            x,
            round(float(p) * 2**32),
            1 / (1 - float(p)),
            int(seed) & (2**64 - 1),
            step_at,
            step_value,
            int(layer) & (2**32 - 1),
            int(offset),
            x.size,
        ),
    )
    return out


def _step(step: int | Array, like: Array):
    """The step as (null, its value), or as (the array that holds it, 0) if that lies where x does."""
    if (
        hasattr(step, "dtype")
        and step.size == 1
        and type(step) is type(like)
        and step.dtype == "int64"
    ):
        return step, 0
    return null, int(step.item()) if hasattr(step, "item") else int(step)
