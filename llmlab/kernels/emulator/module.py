"""A CUDA text compiled for the CPU, and the launch of its kernels."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import native
from .arguments import ArrayArgument, ParameterType, Value, bind
from .buffers import Memory
from .compilers import MODES, build
from .counting import read_profile
from .errors import CompileError
from .limits import check_limits
from .messages import compile_message
from .profile import Profile
from .report import Report
from .symbols import Symbols
from .translate import translate

NO_MEMORY = 2  # what emulated_launch returns when it cannot keep watch

Dimensions = int | Sequence[int]


class Module:
    """CUDA C++ text, compiled so that its kernels run on this CPU, one thread after another.

    Args:
        code: the kernel's text.
        options: ``-D`` and ``-I`` options; others are for a GPU's compiler, and mean nothing here.
        name_expressions: instantiations of templates, such as ``"scale<float, 4>"``.
        mode: ``"fast"``; ``"check"``, which watches every access; ``"profile"``, which counts them as well.
        filename: the name of the text in messages.
        include_dirs: folders in which ``#include "..."`` looks.

    Raises:
        CompileError: if the text is not valid; the message quotes the line.
        CompilerNotFoundError: if the machine has no C++ compiler; the message says how to get one.

    >>> import numpy as np
    >>> from llmlab.kernels.emulator import Module, Out
    >>> module = Module('''
    ... extern "C" __global__ void add_one(float* y, const float* x, int n) {
    ...   int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...   if (i < n) y[i] = x[i] + 1.0f;
    ... }
    ... ''', mode="check")
    >>> x, y = np.arange(5, dtype=np.float32), np.empty(5, np.float32)
    >>> module.launch("add_one", 2, 4, [Out(y), x, 5])
    >>> y
    array([1., 2., 3., 4., 5.], dtype=float32)
    """

    def __init__(
        self,
        code: str,
        options: Sequence[str] = (),
        name_expressions: Sequence[str] = (),
        mode: str = "fast",
        filename: str = "kernel.cu",
        include_dirs: Sequence[str | Path] = (),
    ):
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}; got {mode!r}")
        self.mode = mode
        folders = [*include_dirs, *_values_of(options, "I")]
        translation = translate(code, filename, tuple(name_expressions), folders, _values_of(options, "D"))
        self._sources, self._translated = translation.sources, translation.translated
        self._kernels = translation.kernels
        self._numbers = {name: number for number, name in enumerate(self._kernels)}
        try:
            path = build(translation.text, filename, mode)
        except CompileError as error:
            raise CompileError(compile_message(str(error), filename, self._sources)) from None
        self._library = native.load(path)
        self._symbols = Symbols(path, self._library, list(self._sources), filename)
        self._parameters: dict[str, list[ParameterType]] = {}

    @property
    def kernels(self) -> list[str]:
        """The names under which kernels can be launched."""
        return list(self._kernels)

    def parameters(self, name: str) -> list[ParameterType]:
        """The parameters of a kernel: name and type.

        Raises:
            ValueError: if the module has no such kernel.
        """
        if name not in self._parameters:
            self._parameters[name] = self._describe(name)
        return self._parameters[name]

    def launch(
        self,
        name: str,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[Any],
        shared_mem: int = 0,
        *,
        outputs: Sequence[str] = (),
        time_limit: float | None = None,
    ) -> Profile | None:
        """Run a kernel; in mode ``"profile"``, return its `Profile`.

        Args:
            name: a kernel of the module, or one of its ``name_expressions``.
            grid, block: one to three sizes.
            args: arrays for pointers (None for a null pointer), numbers for values; ``Out(array)`` for an
                array that the kernel must fill.
            shared_mem: bytes of dynamic shared memory.
            outputs: names of parameters that the kernel must fill, as if each array came as ``Out(array)``.
            time_limit: seconds of processor time after which a thread counts as caught in an endless loop.

        Raises:
            TypeError, ValueError: for arguments that do not fit; the message names the parameter.
            KernelFault: what the kernel did wrong; see the subclasses.
        """
        parameters = self.parameters(name)
        grid, block = _three(grid, "grid"), _three(block, "block")
        check_limits(self._kernels[name], name, grid, block, shared_mem)
        values = bind(name, parameters, args, outputs)
        memory = Memory([v for v in values if isinstance(v, ArrayArgument)], watched=self.mode != "fast")
        fault = native.Fault()
        with native.launch_lock:
            launch, alive = self._request(name, grid, block, values, memory, shared_mem, time_limit)
            failed = self._library.emulated_launch(ctypes.byref(launch), ctypes.byref(fault))
            del alive
            report = Report(
                name,
                grid,
                block,
                self.mode,
                parameters,
                values,
                memory,
                self._symbols,
                self._sources,
                self._translated,
            )
            profile = read_profile(self._library, report) if self.mode == "profile" and not failed else None
        if failed == NO_MEMORY:
            raise MemoryError(
                f"{name}: not enough memory to watch arrays of {memory.bytes} bytes; check a smaller problem"
            )
        if failed:
            raise report.exception(fault)
        report.check_guards()
        memory.write_back()
        return profile

    def _describe(self, name: str) -> list[ParameterType]:
        if name not in self._numbers:
            known = ", ".join(self._numbers) or "none"
            template = "<" in name or any(k.name == name and k.is_template for k in self._kernels.values())
            hint = " Instantiations of templates must be listed in name_expressions." if template else ""
            raise ValueError(f"there is no kernel {name}; the module has: {known}.{hint}")
        types = (native.Parameter * 256)()
        count = self._library[f"emulated_describe_{self._numbers[name]}"](types)
        names = self._kernels[name].parameters
        if len(names) != count:
            names = tuple(f"argument_{i}" for i in range(count))
        return [ParameterType.of(names[i], types[i]) for i in range(count)]

    def _request(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        values: list[Value],
        memory: Memory,
        shared_mem: int,
        time_limit: float | None,
    ) -> tuple[native.Launch, list[Any]]:
        """The launch as the engine wants it, and the objects that must live as long as it runs."""
        boxes = [_box(value, memory) for value in values]
        pointers = (ctypes.c_void_p * max(1, len(boxes)))(*[ctypes.addressof(box) for box in boxes])
        regions = memory.regions()
        native_regions = (native.Region * max(1, len(regions)))(*regions)
        launch = native.Launch(
            run=ctypes.cast(self._library[f"emulated_run_{self._numbers[name]}"], ctypes.c_void_p),
            values=pointers,
            grid=(ctypes.c_uint * 3)(*grid),
            block=(ctypes.c_uint * 3)(*block),
            shared_bytes=shared_mem,
            regions=native_regions,
            region_count=len(regions),
            time_limit=_time_limit() if time_limit is None else time_limit,
            stacks=native.stacks(),
        )
        return launch, [boxes, pointers, native_regions]


def _box(value: Value, memory: Memory) -> Any:
    """Memory that holds one argument as the kernel will read it."""
    if isinstance(value, bytes):
        return ctypes.create_string_buffer(value, max(16, len(value)))
    return ctypes.c_void_p(memory.address(value) if value is not None else None)


def _three(sizes: Dimensions, what: str) -> tuple[int, int, int]:
    given = tuple(sizes) if isinstance(sizes, Sequence | np.ndarray) else (sizes,)
    if not 1 <= len(given) <= 3 or not all(isinstance(size, int | np.integer) for size in given):
        raise TypeError(f"{what} must be one to three whole numbers; got {sizes!r}")
    return tuple(int(size) for size in (*given, 1, 1)[:3])


def _time_limit() -> float:
    return float(os.environ.get("LLMLAB_EMULATOR_TIME_LIMIT", "60"))


def _values_of(options: Sequence[str], letter: str) -> list[str]:
    """What follows ``-D`` or ``-I``; other options (``--use_fast_math`` ...) are for a GPU's compiler."""
    return [option[2:].strip() for option in options if option.startswith(f"-{letter}")]
