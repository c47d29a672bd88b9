"""Where arrays live and what they are made of: NumPy or CuPy, dtypes, scratch memory.

The one place that asks whether there is a GPU. CuPy is recognised without importing it: whoever holds a
CuPy array has imported CuPy already.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

__all__ = [
    "accumulation_dtype",
    "bfloat16",
    "compute_capability",
    "dtype",
    "float16",
    "float32",
    "float64",
    "gpu_available",
    "namespace",
    "row_chunks",
    "scratch",
    "scratch_bytes",
    "scratch_frame",
    "to_numpy",
]

Array = Any
"""A NumPy or a CuPy array."""

float64 = np.dtype(np.float64)
float32 = np.dtype(np.float32)
float16 = np.dtype(np.float16)
bfloat16 = np.dtype(ml_dtypes.bfloat16)

_DTYPES = {d.name: d for d in (float64, float32, float16, bfloat16)}


def dtype(name: str | np.dtype) -> np.dtype:
    """The floating-point dtype of that name: "float64", "float32", "float16" or "bfloat16".

    >>> dtype("bfloat16").itemsize
    2
    """
    try:
        found = _DTYPES.get(name if isinstance(name, str) else np.dtype(name).name)
    except TypeError:
        found = None
    if name is None:  # which NumPy reads as float64
        found = None
    if found is None:
        raise ValueError(f"dtype is {name!r}, needs to be one of {', '.join(_DTYPES)}")
    return found


def is_cupy(x: Array) -> bool:
    """Whether `x` is a CuPy array (without importing CuPy)."""
    return not isinstance(x, np.ndarray) and type(x).__module__.partition(".")[0] == "cupy"


def namespace(x: Array) -> ModuleType:
    """The module whose functions work on `x`: `numpy` or `cupy`.

    >>> namespace(np.zeros(3)).__name__
    'numpy'
    """
    return np if isinstance(x, np.ndarray) or not is_cupy(x) else sys.modules["cupy"]


def accumulation_dtype(x: Array | np.dtype) -> np.dtype:
    """The dtype in which sums over `x` are kept: float64 for float64, float32 for everything shorter.

    >>> accumulation_dtype(np.zeros(3, bfloat16)).name
    'float32'
    """
    return float64 if getattr(x, "dtype", x) == float64 else float32


@functools.cache
def gpu_available() -> bool:
    """Whether CuPy is installed and sees a CUDA device. Asked once, then remembered."""
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:  # no CuPy, no driver, no device: each raises something else, all mean no
        return False


def compute_capability() -> tuple[int, int]:
    """Of the current GPU, as (major, minor); (0, 0) without one.

    >>> compute_capability() > (0, 0) or not gpu_available()
    True
    """
    if not gpu_available():
        return 0, 0
    import cupy

    digits = cupy.cuda.Device().compute_capability
    return int(digits[:-1]), int(digits[-1])


def to_numpy(x: Array) -> np.ndarray:
    """`x` on the host: itself if it is a NumPy array, a copy if it lives on a GPU.

    >>> to_numpy(np.arange(3)).tolist()
    [0, 1, 2]
    """
    return x.get() if is_cupy(x) else np.asarray(x)


def row_chunks(N: int, workspace: Array) -> Iterator[tuple[slice, Array]]:
    """N rows, as many at a time as `workspace` has: a chunk's place among them, and the workspace for it.

    >>> [(rows, len(part)) for rows, part in row_chunks(5, np.empty((3, 7)))]
    [(slice(0, 3, None), 3), (slice(3, 5, None), 2)]
    """
    for start in range(0, N, max(1, len(workspace))):
        end = min(start + len(workspace), N)
        yield slice(start, end), workspace[:end - start]


# Scratch memory. Large fresh arrays come from mmap and every page costs a fault on its first write, which is
# dearer than the arithmetic done on it. So temporaries are cut from a stack that each thread keeps.

_ALIGNMENT = 64  # bytes: a cache line, and the width of an AVX-512 register


class _Stack(threading.local):
    """One thread's scratch: its memory, the bytes taken, the most bytes wanted, and the open frames."""

    def __init__(self) -> None:
        self.chunk = np.empty(0, np.uint8)
        self.used = 0
        self.wanted = 0
        self.frames = 0


_stack = _Stack()


class scratch_frame:
    """Within it, `scratch` hands out memory that is taken back at its end. Frames nest, per thread.

    >>> with scratch_frame():
    ...     a = scratch((2, 3), float32, like=np.zeros(1))
    """

    __slots__ = ("used",)

    def __enter__(self) -> None:
        self.used = _stack.used
        _stack.frames += 1

    def __exit__(self, *error: object) -> None:
        _stack.frames -= 1
        _stack.used = self.used
        if _stack.frames == 0:
            if _stack.wanted > _stack.chunk.size:  # what overflowed this time fits next time
                _stack.chunk = np.empty(_stack.wanted + _ALIGNMENT, np.uint8)
            _stack.wanted = 0


def scratch(shape: tuple[int, ...], dtype: np.dtype, like: Array) -> Array:
    """An uninitialised temporary beside `like`, valid until the enclosing `scratch_frame` ends.

    Outside a frame, and on a GPU (CuPy's pool has no page faults), it is an ordinary new array.

    >>> with scratch_frame():
    ...     scratch((2, 3), float32, like=np.zeros(1)).shape
    (2, 3)
    """
    if is_cupy(like) or _stack.frames == 0:
        return namespace(like).empty(shape, dtype)
    size = math.prod(shape) * dtype.itemsize
    start = _stack.used
    _stack.used += -(-size // _ALIGNMENT) * _ALIGNMENT
    _stack.wanted = max(_stack.wanted, _stack.used)
    if _stack.used > _stack.chunk.size:
        return np.empty(shape, dtype)
    return _stack.chunk[start:start + size].view(dtype).reshape(shape)


def scratch_bytes() -> int:
    """Bytes of scratch that this thread keeps between ops."""
    return _stack.chunk.size
