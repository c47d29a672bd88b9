"""`llmlab doctor`: what this machine has, and what each missing piece would give."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from llmlab import __version__, arrays
from llmlab.cli import Parser


class Finding(NamedTuple):
    """One thing looked for: what was found ("" if nothing), and what it gives."""

    name: str
    found: str
    gives: str


def main(argv: list[str]) -> int:
    Parser(prog="llmlab doctor", description=__doc__.split(": ", 1)[1]).parse_args(argv)
    system = f"{platform.system()} {platform.machine()}"
    print(f"llmlab {__version__}, Python {platform.python_version()}, {system}\n")
    for look in (machine, gpu, emulator, extras):
        for finding in look():
            mark, text = ("ok", finding.found) if finding.found else ("--", "not here")
            advice = "" if finding.found else f"; {finding.gives}"
            print(f"  {mark}  {finding.name:<12} {text}{advice}")
    print("\n`llmlab train` runs without what is marked --; chapters need the extra book and a C++ compiler.")
    return 0


def machine() -> Iterator[Finding]:
    """What training on the CPU stands on."""
    from llmlab.engine import usable_cores

    yield Finding("cores", f"{usable_cores()} usable", "")
    yield Finding("memory", memory(), "")
    yield Finding("NumPy", f"{np.__version__}, {blas()}", "")


def memory() -> str:
    """The machine's memory, as far as the system tells."""
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return "size unknown"


def blas() -> str:
    """The matrix-product library that NumPy uses and its kernels: most of the speed on a CPU is theirs."""
    import threadpoolctl

    pools = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
    if not pools:
        return "with a BLAS that does not tell its name"
    return ", ".join(f"{p['internal_api']} {p['version']}, {p.get('architecture')} kernels" for p in pools)


def gpu() -> Iterator[Finding]:
    """What the GPU path stands on."""
    cupy = version("cupy-cuda13x") or version("cupy-cuda12x")
    yield Finding("CuPy", cupy, "pip install -e '.[gpu]' lets the kernels run on an NVIDIA GPU")
    yield Finding("cuDNN", version("nvidia-cudnn-frontend"), "pip install -e '.[gpu]' brings its attention")
    yield Finding("GPU", gpu_name(), "with one, `llmlab train` uses it and chapters time their kernels")


def gpu_name() -> str:
    """The current CUDA device, if CuPy sees one."""
    if not arrays.gpu_available():
        return ""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return f"{properties['name'].decode()}, {properties['totalGlobalMem'] / 2**30:.0f} GiB"


def emulator() -> Iterator[Finding]:
    """What runs CUDA kernels on the CPU."""
    gives = "a compiler (apt install g++, or pip install -e '.[emulator]') runs CUDA kernels on this CPU"
    yield Finding("C++", compiler(), gives)
    yield Finding("nvcc", shutil.which("nvcc") or "", "only for the compiler's own reports")


def compiler() -> str:
    """The command of the compiler that the emulator takes, "" if it finds none."""
    from llmlab.kernels.emulator import compilers, errors

    try:
        return " ".join(compilers.find_compiler().command)
    except (errors.CompilerNotFoundError, errors.PlatformError):
        return ""


def extras() -> Iterator[Finding]:
    """The packages of the extras."""
    wanted: dict[str, tuple[str, str]] = {
        "torch": ("torch", "pip install -e '.[torch]' gives what tests and benchmarks compare with"),
        "jupyterlab": ("jupyterlab", "pip install -e '.[book]' opens and builds the book"),
        "sphinx": ("sphinx", "pip install -e '.[book]' opens and builds the book"),
        "pytest": ("pytest", "pip install -e '.[test]' runs the tests"),
    }
    for name, (package, gives) in wanted.items():
        yield Finding(name, version(package), gives)


def version(package: str) -> str:
    """The installed version of a package, "" if it is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
