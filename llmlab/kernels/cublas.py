"""Matrix products by cuBLAS: operands in any dtype of ours, sums in float32, the result added where it is wanted."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np

from llmlab.arrays import Array, bfloat16, float16, float32, is_cupy

_CUDA_TYPES = {float32: 0, float16: 2, bfloat16: 14}  # cudaDataType: CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF
_COMPUTE_32F = 68  # cublasComputeType: sums in float32, and no TF32 for float32 operands
_ALGORITHM_DEFAULT = -1
_NO_TRANSPOSE, _TRANSPOSE = 0, 1


def product(
    a: Array, b: Array, out: Array, *, transpose_a: bool = False, transpose_b: bool = False, add: bool = False
) -> None:
    """out = a b, or out += a b with ``add``; a or b transposed on request.

    a and b: matrices of one dtype; out: a matrix of that dtype, or float32 to receive the sums as they are. All
    C-contiguous. Adding into float32 costs no pass of its own: the product reads and writes what it would write anyway.
    NumPy arrays (kernels emulated) are multiplied by NumPy in float32.
    """
    if is_cupy(a):
        _on_gpu(a, b, out, transpose_a, transpose_b, add)
        return
    a, b = (m.astype(float32, copy=False) for m in (a.T if transpose_a else a, b.T if transpose_b else b))
    c = a @ b
    out[...] = out + c if add else c


def _on_gpu(a: Array, b: Array, out: Array, transpose_a: bool, transpose_b: bool, add: bool) -> None:
    # cuBLAS counts columns first: it sees each of our matrices transposed, and computes outᵀ = bᵀ aᵀ from them.
    rows, columns = out.shape
    inner = a.shape[0] if transpose_a else a.shape[1]
    one, other = _scalars()
    with a.device as device:
        _library().gemmEx(
            device.cublas_handle, _TRANSPOSE if transpose_b else _NO_TRANSPOSE, _TRANSPOSE if transpose_a else _NO_TRANSPOSE,
            columns, rows, inner,
            one, b.data.ptr, _CUDA_TYPES[b.dtype], b.shape[1],
            a.data.ptr, _CUDA_TYPES[a.dtype], a.shape[1],
            one if add else other, out.data.ptr, _CUDA_TYPES[out.dtype], columns,
            _COMPUTE_32F, _ALGORITHM_DEFAULT)


@functools.cache
def _scalar_values() -> np.ndarray:
    return np.array([1, 0], float32)


def _scalars() -> tuple[int, int]:
    """Addresses of a one and a zero on the host, which cuBLAS reads before the call returns."""
    address = _scalar_values().ctypes.data
    return address, address + float32.itemsize


@functools.cache
def _library() -> ModuleType | Any:
    from cupy_backends.cuda.libs import cublas

    return cublas
