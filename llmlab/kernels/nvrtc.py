"""NVRTC from its pip packages: compiles a kernel for any GPU, on a machine that has none."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """What one kernel takes of a multiprocessor, as the assembler tells it.

    registers: a thread; shared: bytes of static shared memory a block; stack: bytes of local memory a thread;
    spills: bytes of registers stored to and loaded from that local memory, which is slow.
    """

    kernel: str
    registers: int
    shared: int
    stack: int
    spills: int


def compile(
    code: str, expressions: tuple[str, ...], architecture: str = "sm_90", options: tuple[str, ...] = ()
) -> list[Usage]:
    """Compile CUDA text to machine code and return the usage of each kernel in it.

    Raises:
        ImportError: if ``cuda-bindings`` or the NVRTC library is not installed.
        ValueError: with the compiler's log, if the text does not compile.
    """
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(code.encode(), b"kernel.cu", 0, [], [])
    try:
        for expression in expressions:
            nvrtc.nvrtcAddNameExpression(program, expression.encode())
        includes = [f"-I{folder}" for folder in _include_folders()]
        words = ["-std=c++17", f"-arch={architecture}", "--ptxas-options=-v", *includes, *options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(words), [word.encode() for word in words])
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    text = log.rstrip(b"\0").decode()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise ValueError(text)
    return _usages(text)


def _usages(log: str) -> list[Usage]:
    pattern = (
        r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)"
    )
    usages = []
    for kernel, stack, stores, loads, registers, rest in re.findall(pattern, log, re.DOTALL):
        shared = re.search(r"(\d+) bytes smem", rest)
        static = int(shared[1]) if shared else 0
        usages.append(Usage(kernel, int(registers), static, int(stack), int(stores) + int(loads)))
    return usages


def _include_folders() -> list[Path]:
    """Where pip put CUDA's headers."""
    found = (folder for root in sys.path for folder in Path(root).glob("nvidia/**/include"))
    return [folder for folder in found if (folder / "cuda_bf16.h").is_file()]
