"""`llmlab kernel check FILE`: run a CUDA kernel on this machine's CPU and say what is wrong with it."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

from llmlab.cli import Parser
from llmlab.errors import UserError
from llmlab.kernels import nvrtc, signature
from llmlab.kernels.emulation import emulated
from llmlab.kernels.rawmodule import RawModule

_ARGUMENTS = """\
arguments, one for each parameter of the kernel, by name:
  n=1000          a number
  x=1000          an array of that many elements (or of a shape: x=64x100), with what in it:
  x=1000:random   normal random numbers; whole ones from 0 to 9 (what a const pointer gets if nothing is said)
  y=1000:out      nothing yet, to be filled by the kernel (what other pointers get)
  y=1000:zeros    or ones, or arange
  x=@file.npy     the array in that file

example:
  llmlab kernel check add.cu add --grid 8 --block 128 y=1000 x=1000 n=1000

Without arguments, the file is compiled and its kernels are listed; with the packages cuda-bindings and
nvidia-cuda-nvrtc also by NVIDIA's compiler, which tells the registers of each.
"""


def main(argv: list[str]) -> int:
    """Run `llmlab kernel check`; return its exit code: 0 sound, 1 the kernel is at fault, 2 bad input."""
    if argv[:1] != ["check"]:
        asked_for_help = argv[:1] in (["-h"], ["--help"])
        if not asked_for_help:
            raise UserError("llmlab kernel has one command: llmlab kernel check FILE ...; see --help")
        argv = ["check", "--help"]
    check = Parser(
        prog="llmlab kernel check",
        description="Run a kernel on the CPU, watching every access for what CUDA would let pass.",
        epilog=_ARGUMENTS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("file", type=Path, help="CUDA text, such as add.cu")
    check.add_argument("kernel", nargs="?", help="its name, a template with arguments: 'scale<float>'")
    check.add_argument("arguments", nargs="*", metavar="name=value", help="see below")
    check.add_argument("--grid", type=_sizes, default=(1,), help="blocks, such as 8 or 8,4 (default: 1)")
    check.add_argument("--block", type=_sizes, default=(128,), help="threads of a block (default: 128)")
    check.add_argument("--shared", type=int, default=0, help="bytes of dynamic shared memory")
    check.add_argument("--seed", type=int, default=0, help="of the random numbers")
    check.add_argument("--profile", action="store_true", help="count the memory traffic of each line as well")
    check.add_argument(
        "--picture", type=Path, metavar="FILE.png", help="draw the worst access to memory"
    )
    arguments = check.parse_intermixed_args(argv[1:])
    if not arguments.file.is_file():
        raise UserError(f"there is no file {arguments.file}")
    if arguments.kernel is not None and "=" in arguments.kernel:
        raise UserError(
            f"name the kernel before its arguments: {arguments.file} KERNEL {arguments.kernel} ..."
        )
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed}: must be >= 0")
    module = RawModule(code=_text(arguments.file), name=str(arguments.file))
    return _list(module) if arguments.kernel is None else _check(module, arguments)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{file} is no text: give the CUDA source, such as add.cu") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not one to three whole numbers, such as 8,4") from None


def _list(module: RawModule) -> int:
    """Print each kernel's parameters, and what NVIDIA's compiler says of those that are no templates."""
    kernels = signature.kernel_names(module.code)
    if not kernels:
        raise UserError(f"{module.name} defines no __global__ function")
    plain = [name for name, is_template in kernels.items() if not is_template]
    for name in kernels:
        parameters = signature.parameters(module.code, name) or ()
        print(f"{name}({', '.join(parameter.text for parameter in parameters)})"
              + ("" if name in plain else "   (a template)"))  # fmt: skip
    try:
        usages = nvrtc.compile(module.code, tuple(plain))
    except ImportError:
        return 0
    except ValueError as error:
        print(error)
        return 1
    for usage in usages:
        print(f"  sm_90: {usage.kernel}: {usage.registers} registers a thread, {usage.spills} bytes of them "
              f"spilled; {usage.shared} bytes of shared memory a block")  # fmt: skip
    return 0


def _check(module: RawModule, arguments: argparse.Namespace) -> int:
    from llmlab.kernels.emulator import EmulatorError

    kernel = arguments.kernel
    names = signature.kernel_names(module.code)
    base = kernel.partition("<")[0]
    if base not in names:
        raise UserError(f"{module.name} has no kernel {base}; it has {', '.join(names) or 'none'}")
    if names[base] and "<" not in kernel:
        raise UserError(f"{base} is a template; name an instantiation, such as '{base}<float>'")
    args = _arguments(kernel, signature.parameters(module.code, kernel), arguments.arguments, arguments.seed)
    profiling = arguments.profile or arguments.picture is not None
    try:
        with emulated("profile" if profiling else "check") as profiles:
            module.get_function(kernel)(arguments.grid, arguments.block, args, shared_mem=arguments.shared)
    except EmulatorError as fault:
        print(fault)
        return 1
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from None
    blocks, threads = math.prod(arguments.grid), math.prod(arguments.block)
    print(f"{kernel}: no fault in {blocks} block{'s' * (blocks != 1)} of {threads} threads")
    for profile in profiles:
        print(profile)
        if arguments.picture is not None:
            _draw(profile, arguments.picture)
    return 0


def _draw(profile: Any, file: Path) -> None:
    from llmlab.kernels.picture import warp_accesses

    lines = [line for line in profile.lines if line.space == "global"]
    worst = max(lines, key=lambda line: line.sectors - line.ideal_sectors, default=None)
    if worst is None:
        raise UserError("the kernel touches no global memory: there is nothing to draw")
    warp_accesses(worst.worst).figure.savefig(file, dpi=150)
    print(f"\n{file}: {worst.access} of {worst.array} in {worst.file}:{worst.line}")


def _arguments(kernel: str, parameters: tuple, words: list[str], seed: int) -> tuple:
    given = dict(word.partition("=")[::2] for word in words)
    names = [parameter.name for parameter in parameters]
    missing = [name for name in names if name not in given]
    unknown = [name for name in given if name not in names]
    if missing or unknown:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has no parameter {', '.join(unknown)}"
        raise UserError(f"{kernel} {wrong}; its parameters are {', '.join(p.text for p in parameters)}")
    rng = np.random.default_rng(seed)
    return tuple(_argument(parameter, given[parameter.name], rng) for parameter in parameters)


def _argument(parameter: signature.Parameter, text: str, rng: np.random.Generator) -> Any:
    try:
        if not parameter.is_pointer:
            return _number(text)
        if text.startswith("@"):
            return np.load(text[1:])
        size, _, content = text.partition(":")
        return _array(parameter, tuple(int(n) for n in size.split("x")), content, rng)
    except (MemoryError, OverflowError):
        raise UserError(f"argument {parameter.name}={text}: more than this machine's memory") from None
    except (ValueError, OSError) as error:
        raise UserError(f"argument {parameter.name}={text}: {error}") from None


def _number(text: str) -> int | float:
    return int(text, 0) if text.lstrip("+-")[:1].isdigit() and not set(text) & set(".eE") else float(text)


def _array(
    parameter: signature.Parameter, shape: tuple[int, ...], content: str, rng: np.random.Generator
) -> Any:
    dtype = parameter.dtype
    if dtype is None:
        raise ValueError(f"no NumPy dtype for {parameter.text}; give the array with @file.npy")
    content = content or ("random" if parameter.is_const else "out")
    if content == "out":
        return signature.Out(np.empty(shape, dtype))
    if content == "random":
        whole = np.issubdtype(dtype, np.integer)
        return (rng.integers(0, 10, shape) if whole else rng.standard_normal(shape)).astype(dtype)
    if content == "arange":
        return np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    if content in ("zeros", "ones"):
        return getattr(np, content)(shape, dtype)
    raise ValueError(f"{content!r} is none of random, out, zeros, ones, arange")
