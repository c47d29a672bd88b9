"""What launchers ask of arrays before they launch, and how they share a GPU out."""

from __future__ import annotations

import functools

import numpy as np

from llmlab.arrays import Array, is_cupy, namespace

PACK_BYTES = 16  # the widest access of one thread: LDG.128


def contiguous(array: Array | None) -> Array | None:
    """The array itself (or None) if it is contiguous in C order, else a copy: kernels see no strides."""
    if array is None or array.flags.c_contiguous:
        return array
    return namespace(array).ascontiguousarray(array)


def result(name: str, given: Array | None, shape: tuple[int, ...], dtype: np.dtype, like: Array) -> Array:
    """The buffer for a result: ``given`` after checks, or a new one beside ``like``.

    Raises:
        TypeError: if ``given`` has another dtype.
        ValueError: if it has another shape, or is a view with gaps (the result would land in a copy).
    """
    if given is None:
        return namespace(like).empty(shape, dtype)
    if given.dtype != dtype:
        raise TypeError(f"{name} is a buffer of {given.dtype}; this result is {np.dtype(dtype)}")
    if given.shape != shape:
        raise ValueError(f"{name} is a buffer of shape {given.shape}; this result has shape {shape}")
    if not given.flags.c_contiguous:
        raise ValueError(
            f"{name} is a view with strides {given.strides}; a kernel writes contiguous buffers only"
        )
    return given


def address(array: Array) -> int:
    """Where the array's first element lies."""
    return array.data.ptr if is_cupy(array) else array.ctypes.data


def packs(columns: int, *arrays: Array | None) -> bool:
    """Whether rows of ``columns`` elements can be read 16 bytes at a time in all the arrays (None aside).

    They can if every array starts on a 16-byte boundary and every row is a multiple of 16 bytes long.
    """
    return all(
        address(array) % PACK_BYTES == 0 and columns * array.itemsize % PACK_BYTES == 0
        for array in arrays
        if array is not None
    )


def multiprocessors(array: Array) -> int:
    """How many multiprocessors the array's GPU has; 2 when emulated, so that blocks do share the work."""
    return _multiprocessors(array.device.id) if is_cupy(array) else 2


@functools.cache
def _multiprocessors(device: int) -> int:
    import cupy

    return cupy.cuda.Device(device).attributes["MultiProcessorCount"]


def ceil_divide(a: int, b: int) -> int:
    """The number of pieces of size b that cover a."""
    return -(-a // b)
