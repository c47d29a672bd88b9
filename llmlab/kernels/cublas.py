"""Matrix products by cuBLAS: operands in any dtype of ours, sums in float32.

CuPy loads the library, but refuses its own calls while a CUDA graph is captured. So it is called here by
ctypes, with a handle and a workspace of our own, on CuPy's current stream.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

from llmlab.arrays import Array, bfloat16, float16, float32, is_cupy

CUDA_TYPES = {float32: 0, float16: 2, bfloat16: 14}  # cudaDataType: CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF
COMPUTE_32F = 68  # cublasComputeType: sums in float32, and no TF32 for float32 operands
_ALGORITHM_DEFAULT = -1
NO_TRANSPOSE, TRANSPOSE = 0, 1
WORKSPACE = 32 << 20  # bytes, as NVIDIA recommends for Hopper
ONE, ZERO = (
    ctypes.byref(ctypes.c_float(value)) for value in (1.0, 0.0)
)  # factors, read before a call returns


def product(
    a: Array, b: Array, out: Array, *, transpose_a: bool = False, transpose_b: bool = False, add: bool = False
) -> None:
    """out = a b, or out += a b with ``add``; a or b transposed on request.

    a and b: matrices of one dtype; out: a matrix of that dtype, or float32 to receive the sums as they are.
    All C-contiguous. Adding into float32 costs no pass of its own: the product reads and writes what it would
    write anyway. NumPy arrays (kernels emulated) are multiplied by NumPy in float32.

    >>> import numpy as np
    >>> total = np.ones((1, 1), np.float32)
    >>> product(np.array([[2.0, 3.0]], np.float16), np.array([[10.0], [1.0]], np.float16), total, add=True)
    >>> total.tolist()
    [[24.0]]
    """
    if is_cupy(a):
        _on_gpu(a, b, out, transpose_a, transpose_b, add)
        return
    a, b = (m.astype(float32, copy=False) for m in (a.T if transpose_a else a, b.T if transpose_b else b))
    c = a @ b
    out[...] = out + c if add else c


def _on_gpu(a: Array, b: Array, out: Array, transpose_a: bool, transpose_b: bool, add: bool) -> None:
    # cuBLAS counts columns first: it sees our matrices transposed, and computes outᵀ = bᵀ aᵀ from them.
    rows, columns = out.shape
    inner = a.shape[0] if transpose_a else a.shape[1]
    context = _context(a.device.id)
    with a.device:
        context.use_current_stream()
        context.call(
            "cublasGemmEx",
            context.handle,
            TRANSPOSE if transpose_b else NO_TRANSPOSE,
            TRANSPOSE if transpose_a else NO_TRANSPOSE,
            columns,
            rows,
            inner,
            ONE,
            ctypes.c_void_p(b.data.ptr),
            CUDA_TYPES[b.dtype],
            b.shape[1],
            ctypes.c_void_p(a.data.ptr),
            CUDA_TYPES[a.dtype],
            a.shape[1],
            ONE if add else ZERO,
            ctypes.c_void_p(out.data.ptr),
            CUDA_TYPES[out.dtype],
            columns,
            COMPUTE_32F,
            _ALGORITHM_DEFAULT,
        )


@dataclass
class _Context:
    """cuBLAS on one device: the library, a handle, and the workspace that its kernels may use."""

    library: Any
    handle: ctypes.c_void_p
    workspace: Array
    stream: int | None = None

    def call(self, name: str, *args: Any) -> None:
        status = getattr(self.library, name)(*args)
        if status:
            raise RuntimeError(f"{name} failed with status {status} of cublasStatus_t")

    def use_current_stream(self) -> None:
        import cupy

        stream = cupy.cuda.get_current_stream().ptr
        if stream != self.stream:
            self.call("cublasSetStream_v2", self.handle, ctypes.c_void_p(stream))
            # a change of stream takes the workspace away
            self.call(
                "cublasSetWorkspace_v2",
                self.handle,
                ctypes.c_void_p(self.workspace.data.ptr),
                ctypes.c_size_t(self.workspace.nbytes),
            )
            self.stream = stream


@functools.cache
def _context(device: int) -> _Context:
    import cupy

    with cupy.cuda.Device(device):
        library = ctypes.CDLL(f"libcublas.so.{major_version(device)}")
        context = _Context(library, ctypes.c_void_p(), workspace(device))
        context.call("cublasCreate_v2", ctypes.byref(context.handle))
    return context


@functools.cache
def workspace(device: int) -> Array:
    """Memory for the products' kernels on a device. They run one after the other, so all may share it."""
    import cupy

    with cupy.cuda.Device(device):
        return cupy.empty(WORKSPACE, cupy.uint8)


@functools.cache
def major_version(device: int) -> int:
    """Of cuBLAS: the end of its file's name. CuPy has loaded it already, so the name alone finds it."""
    import cupy
    from cupy_backends.cuda.libs import cublas

    return cublas.getVersion(cupy.cuda.Device(device).cublas_handle) // 10000
