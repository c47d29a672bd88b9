"""Working precision: low-precision tensors are read as float32, results rounded once, scratch handed back.

With this decorator the text of an op is written once, in one precision, with buffers for its results.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

from llmlab.arrays import (
    Array,
    accumulation_dtype,
    bfloat16,
    float16,
    float32,
    namespace,
    scratch,
    scratch_frame,
)

__all__ = ["gradient", "mixed_precision", "result"]

_LOW = frozenset({bfloat16, float16})


def mixed_precision(*rounded: str) -> Callable:
    """Let a function written for one working precision take bfloat16 and float16 as well.

    Low-precision arguments arrive in it as float32. The results named in `rounded` are computed in float32
    and rounded once, into the buffer given or a new array; the other results (statistics, gradients of
    parameters) stay float32. float32 and float64 pass through untouched. The whole call is one scratch
    frame.
    """

    def decorate(function: Callable) -> Callable:
        parameters = inspect.signature(function).parameters.values()
        results = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]

        @functools.wraps(function)
        def text(*arguments, **named):
            with scratch_frame():
                tensors = (*arguments, *named.values())
                low = next((a for a in tensors if getattr(a, "dtype", None) in _LOW), None)
                if low is None:
                    return function(*arguments, **named)
                values = function(*map(_read, arguments), **_working_buffers(named))
                many = isinstance(values, tuple)
                rounds: dict[int, Array] = {}  # two results that are one array stay one array
                out = []
                for name, value in zip(results, values if many else (values,)):
                    if name in rounded and value is not None:
                        if id(value) not in rounds:
                            rounds[id(value)] = result(named.get(name), value.shape, low, low.dtype)
                            rounds[id(value)][...] = value
                        value = rounds[id(value)]
                    out.append(value)
                return tuple(out) if many else out[0]

        return text

    def _working_buffers(named: dict) -> dict:
        """In place of each low-precision buffer a float32 one (the same buffer twice: the same one twice)."""
        working: dict[int, Array] = {}
        for name in rounded:
            buffer = named.get(name)
            if buffer is not None and id(buffer) not in working:
                working[id(buffer)] = scratch(buffer.shape, float32, buffer)
        return {name: working[id(value)] if name in rounded and value is not None else _read(value)
                for name, value in named.items()}

    return decorate


def _read(x: Array) -> Array:
    """`x` in its working precision: float32 scratch for a low-precision array, itself for all else."""
    if getattr(x, "dtype", None) not in _LOW:
        return x
    wide = scratch(x.shape, float32, x)
    wide[...] = x
    return wide


def result(buffer: Array | None, shape: tuple[int, ...], like: Array, dtype=None) -> Array:
    """The buffer given for a result, or a new array of that shape beside `like`."""
    if buffer is not None:
        return buffer
    return namespace(like).empty(shape, like.dtype if dtype is None else dtype)


def gradient(buffer: Array | None, parameter: Array) -> Array:
    """The buffer into which the gradient of `parameter` is added, or zeros to add it to."""
    if buffer is not None:
        return buffer
    return namespace(parameter).zeros(parameter.shape, accumulation_dtype(parameter))
