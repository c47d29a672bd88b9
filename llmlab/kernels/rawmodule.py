"""CUDA text that runs where its arrays are: CuPy arrays on their GPU, NumPy arrays on the CPU, emulated."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from llmlab.arrays import is_cupy
from llmlab.kernels import emulation, signature, source
from llmlab.kernels.signature import Out, null

SHARED_DEFAULT = 48 * 1024  # bytes of shared memory that a block may have without asking
SHARED_LIMIT = 227 * 1024  # and at most, on compute capability 9.0


class RawModule:
    """Kernels from CUDA C++ text, with the interface of ``cupy.RawModule``.

    Args:
        code: the text. ``#include "common.cuh"`` and the other files of llmlab's kernels are found.
        options: compiler options, such as ``("-DROWS=4",)``.
        name_expressions: instantiations of templates to compile together, such as ``["scale<float>"]``;
            left out, each is compiled by itself when first asked for.
        name: what compilers and the emulator call the text in their messages.

    >>> import numpy as np
    >>> scale = RawModule(code='''
    ... template <class T> __global__ void scale(T* y, const T* x, float by, int n) {
    ...   int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...   if (i < n) y[i] = T(float(x[i]) * by);
    ... }''').get_function("scale<float>")
    >>> y = np.empty(5, np.float32)
    >>> scale((2,), (4,), (y, np.arange(5, dtype=np.float32), 0.5, 5))
    >>> y.tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """

    def __init__(
        self,
        *,
        code: str,
        options: Sequence[str] = (),
        name_expressions: Sequence[str] | None = None,
        name: str = "kernel.cu",
    ):
        if not isinstance(code, str):
            raise TypeError(f"code is {code!r}, needs to be the CUDA C++ text; "
                            f"Path(file).read_text() gives that of a file")
        self.name = name
        self.code = source.with_includes(code, name)
        self.options = tuple(options)
        self.name_expressions = None if name_expressions is None else tuple(name_expressions)
        self._kernels: dict[str, Kernel] = {}

    def get_function(self, name: str) -> Kernel:
        """The kernel of that name, or that instantiation of a template.

        Raises:
            raise ValueError(f"{name} is not among the name_expressions {list(expressions)} of {self.name}")
        """
        kernel = self._kernels.get(name)
        if kernel is not None:
            return kernel
        expressions = self.name_expressions
        if expressions is None:
            expressions = (name,) if "<" in name else ()
        elif "<" in name and name not in expressions:
            raise ValueError(
                f"{name} is not among the name_expressions of {self.name}: {', '.join(expressions)}"
            )
        return self._kernels.setdefault(name, Kernel(name, self, expressions))


@functools.cache
def _on_gpu(code: str, options: tuple[str, ...], expressions: tuple[str, ...]) -> Any:
    """The module compiled by NVRTC, through CuPy."""
    import cupy

    return cupy.RawModule(code=code, options=("-std=c++17", *options), name_expressions=expressions or None)


@functools.cache
def _on_cpu(code: str, options: tuple[str, ...], expressions: tuple[str, ...], name: str, mode: str) -> Any:
    """The module compiled by a C++ compiler, for the emulator."""
    from llmlab.kernels import emulator

    return emulator.Module(code, options, expressions, mode=mode, filename=name)


class Kernel:
    """A kernel of a `RawModule`, to be called with grid, block, arguments and bytes of shared memory."""

    def __init__(self, name: str, module: RawModule, expressions: tuple[str, ...]):
        self.name = name
        self.parameters = signature.parameters(module.code, name)
        self._file = module.name
        self._text = module.code, module.options, expressions
        self._on_device: dict[int, Any] = {}
        self._shared_allowed: dict[int, int] = {}

    def __call__(self, grid: tuple, block: tuple, args: tuple, shared_mem: int = 0) -> None:
        """Launch on the GPU that holds the arrays, in CuPy's current stream; emulated if they are NumPy's.

        Python numbers are converted to the parameter's type.

        Raises:
            TypeError: for a wrong count of arguments, None, a wrong dtype, NumPy beside CuPy arrays.
            ValueError: for a view that is not contiguous, a number out of range, an impossible grid or block.
        """
        grid = tuple(grid) if isinstance(grid, list) else grid
        block = tuple(block) if isinstance(block, list) else block
        grid, block = _launch_shape(self.name, grid, block, shared_mem)
        if self.parameters is not None:
            args = signature.convert(self.name, self.parameters, args)
        arrays = [value.array if type(value) is Out else value for value in args]
        if self._on_gpu(arrays):
            self._launch(grid, block, arrays, shared_mem)
        else:
            self._emulate(grid, block, args, shared_mem)

    def _on_gpu(self, args: Sequence) -> bool:
        on_host = any(isinstance(value, np.ndarray) for value in args)
        on_gpu = any(is_cupy(value) for value in args)
        if on_host == on_gpu:
            found = "both NumPy and CuPy arrays" if on_host else "no array"
            raise TypeError(f"{self.name} got {found}; arrays say where it runs: pass all NumPy or all CuPy")
        return on_gpu

    def _emulate(self, grid: tuple, block: tuple, args: Sequence, shared_mem: int) -> None:
        module = _on_cpu(*self._text, self._file, emulation.mode())
        args = [_for_emulator(value) for value in args]
        emulation.record(module.launch(self.name, grid, block, args, shared_mem))

    def _launch(self, grid: tuple, block: tuple, args: Sequence, shared_mem: int) -> None:
        from cupy.cuda import Device, runtime

        devices = {value.data.device_id for value in args if is_cupy(value)}
        if len(devices) > 1:
            raise TypeError(f"{self.name} got arrays on GPUs {sorted(devices)}; copy them to one")
        (device,) = devices
        pointers = tuple(np.uintp(0) if value is null else value for value in args)
        with nullcontext() if device == runtime.getDevice() else Device(device):
            self._compiled(device, shared_mem)(grid, block, pointers, shared_mem=shared_mem)

    def _compiled(self, device: int, shared_mem: int) -> Any:
        """CuPy's kernel for a GPU, its blocks allowed ``shared_mem`` bytes: beyond 48 KiB one has to ask."""
        kernel = self._on_device.get(device)
        if kernel is None:
            kernel = self._on_device[device] = _on_gpu(*self._text).get_function(self.name)
        if shared_mem > self._shared_allowed.get(device, 0):
            if shared_mem + kernel.shared_size_bytes > SHARED_DEFAULT:
                kernel.max_dynamic_shared_size_bytes = shared_mem
            self._shared_allowed[device] = shared_mem
        return kernel


def _for_emulator(value: Any) -> Any:
    from llmlab.kernels import emulator

    if type(value) is Out:
        return emulator.Out(value.array)
    return None if value is null else value


@functools.lru_cache(maxsize=4096)
def _launch_shape(kernel: str, grid: Any, block: Any, shared_mem: int) -> tuple[tuple, tuple]:
    """Grid and block as three sizes each, if a GPU can launch them."""
    grid = _dimensions(kernel, "grid", grid, (2**31 - 1, 65535, 65535))
    block = _dimensions(kernel, "block", block, (1024, 1024, 64))
    if block[0] * block[1] * block[2] > 1024:
        raise ValueError(f"{kernel}: block {block} has more than 1024 threads")
    if not 0 <= shared_mem <= SHARED_LIMIT:
        raise ValueError(f"{kernel}: shared_mem is {shared_mem} bytes; a block has at most {SHARED_LIMIT}")
    return grid, block


def _dimensions(kernel: str, what: str, given: Any, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    sizes = given if isinstance(given, tuple) else (given,)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(size, (int, np.integer)) for size in sizes):
        raise TypeError(f"{kernel}: {what} is {given!r}; it needs one to three whole numbers")
    sizes = tuple(int(size) for size in sizes) + (1,) * (3 - len(sizes))
    if not all(1 <= size <= limit for size, limit in zip(sizes, limits, strict=True)):
        raise ValueError(
            f"{kernel}: {what} is {given!r}; each size needs to be at least 1 and at most {limits}"
        )
    return sizes
