"""The door of an op: the type of its arrays decides whether its NumPy text or its kernel runs."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

import numpy as np

from llmlab.arrays import float64, is_cupy
from llmlab.kernels import emulation


def accelerated(module: str, function: str) -> Callable:
    """Give an op's text its kernel: ``llmlab.kernels.<module>.<function>``, a launcher of the same signature.

    NumPy arrays run the text, and the launcher inside ``kernels.emulated()``. CuPy arrays run the launcher.
    float64 always runs the text, which is what gradient checks want; so do arguments for which the launcher
    returns ``NotImplemented``. The undecorated text stays at hand as ``op.text``: on CuPy arrays it is the
    rung between NumPy and the kernel.

    Args:
        module, function: where the launcher is; it is imported at its first use.

    Raises:
        TypeError: when one call mixes NumPy and CuPy arrays.
    """

    def decorate(text: Callable) -> Callable:
        @functools.wraps(text)
        def door(*args, **kwargs):
            if _wants_kernel(text, args, kwargs):
                result = _launcher(module, function)(*args, **kwargs)
                if result is not NotImplemented:
                    return result
            return text(*args, **kwargs)

        door.text = text
        return door

    return decorate


def _wants_kernel(text: Callable, args: tuple, kwargs: dict) -> bool:
    values = (*args, *kwargs.values())
    on_host = any(isinstance(value, np.ndarray) for value in values)
    on_gpu = any(map(is_cupy, values))
    if on_host and on_gpu:
        raise TypeError(
            f"{text.__module__}.{text.__name__} got NumPy and CuPy arrays in one call; move all to one "
            "side with cupy.asarray or cupy.asnumpy"
        )
    if on_gpu or (on_host and emulation.active()):
        return not any(
            value.dtype == float64
            for value in values
            if hasattr(value, "dtype") and not isinstance(value, np.generic)  # a number, whatever its width
        )
    return False


@functools.cache
def _launcher(module: str, function: str) -> Callable:
    return getattr(importlib.import_module(f"llmlab.kernels.{module}"), function)
