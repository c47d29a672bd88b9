"""The C++ compilers that the emulator can use, and the words in which each wants to be asked."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import cache
from .errors import CompileError, CompilerNotFoundError, PlatformError

FOLDER = Path(__file__).parent
INCLUDE = FOLDER / "include"
RUNTIME = FOLDER / "runtime"
MODES = ("fast", "check", "profile")

_COMMON = ["-std=c++17", "-fno-exceptions", "-fno-rtti", "-fPIC", "-fvisibility=hidden", "-w"]
_KERNEL = ["-ffp-contract=off", "-fno-strict-aliasing", "-fno-threadsafe-statics", "-fno-finite-loops"]
_WATCHED = [
    "-g",
    "-fno-omit-frame-pointer",
    "-fno-builtin-memcpy",
    "-fsanitize=thread",
    "-fsanitize=integer-divide-by-zero",
]


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command that runs it, and whether it takes g++'s or clang's options."""

    command: tuple[str, ...]
    is_gnu: bool

    @property
    def identity(self) -> str:
        """What tells this compiler from another version of it."""
        file = Path(shutil.which(self.command[0]) or self.command[0]).resolve()
        try:
            status = file.stat()
        except OSError:
            return " ".join(self.command)
        return f"{' '.join(self.command)} {file} {status.st_size} {status.st_mtime_ns}"

    def kernel_flags(self, mode: str) -> list[str]:
        """Options for a kernel's text. Watched code stays as it is written, so that no access disappears."""
        flags = [*_COMMON, *_KERNEL, f"-I{INCLUDE}"]
        if mode == "fast":
            return [*flags, "-O2", *([] if self.is_gnu else ["-fno-sanitize=all"])]
        flags += [*_WATCHED, "-DEMULATED_WATCHED"]
        if self.is_gnu:
            return [*flags, "-fsanitize=bounds", "-Og", "-fno-tree-sink", "-fno-tree-sra"]
        return [
            *flags, "-fsanitize=array-bounds", "-fsanitize=alignment",
            "-fno-sanitize-trap=all", "-fsanitize-recover=all",
            "-O0", "-mllvm", "-tsan-instrument-read-before-write=1",
        ]  # fmt: skip

    def runtime_flags(self, mode: str) -> list[str]:
        """Options for the emulator's own engine."""
        watched = [] if mode == "fast" else ["-DEMULATED_WATCHED"]
        profiled = ["-DEMULATED_PROFILED"] if mode == "profile" else []
        return [*_COMMON, "-O2", "-fno-sanitize=all", f"-I{INCLUDE}", f"-I{RUNTIME}", *watched, *profiled]

    def compile(self, source: Path, flags: list[str], output: Path) -> None:
        self._run([*self.command, *flags, "-c", str(source), "-o", str(output)])

    def link(self, objects: list[Path], output: Path) -> None:
        # Linking as C spares zig from building a C++ library that nothing here needs.
        command = ["cc" if part == "c++" else part for part in self.command]
        self._run([*command, "-shared", *map(str, objects), "-lm", "-o", str(output)])

    @staticmethod
    def _run(command: list[str]) -> None:
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise CompileError(result.stderr or result.stdout)


def find_compiler() -> Compiler:
    """The compiler to use: ``$LLMLAB_CXX``, g++, clang++, or that of the ``ziglang`` package.

    Raises:
        PlatformError: on a system or processor that the emulator does not know.
        CompilerNotFoundError: if there is none; the message has the command that installs one.
    """
    _check_platform()
    chosen = os.environ.get("LLMLAB_CXX")
    if chosen:
        return Compiler(tuple(chosen.split()), "g++" in Path(chosen.split()[0]).name)
    for name in ("g++", "clang++"):
        if shutil.which(name):
            return Compiler((name,), name == "g++")
    if importlib.util.find_spec("ziglang"):
        return Compiler((sys.executable, "-m", "ziglang", "c++"), False)
    raise CompilerNotFoundError(
        "running CUDA kernels on the CPU needs a C++ compiler, and neither g++ nor clang++ was found.\n"
        f"Install one with:  {sys.executable} -m pip install ziglang pyelftools"
    )


def _check_platform() -> None:
    if sys.platform == "win32":
        raise PlatformError(
            "the kernel emulator runs on Linux. On Windows, install the Windows Subsystem for Linux "
            "(`wsl --install`) and run llmlab inside it."
        )
    if sys.platform == "darwin":
        raise PlatformError(
            "the kernel emulator has not been made to run on macOS. Run llmlab in a Linux container, such as "
            "`docker run -it python:3.12`, where it works on Apple silicon too."
        )
    if platform.machine() not in ("x86_64", "AMD64", "aarch64", "arm64"):
        raise PlatformError(
            f"the kernel emulator knows x86-64 and aarch64 processors; this one is {platform.machine()}."
        )


def build(text: str, filename: str, mode: str) -> Path:
    """Compile C++ text to a library that holds the kernels and the engine, or find it in the cache."""
    compiler = find_compiler()
    flags = compiler.kernel_flags(mode)
    name = (
        cache.key(
            text, Path(filename).name, compiler.identity, *flags, *compiler.runtime_flags(mode), _own_text()
        )
        + ".so"
    )

    def make(output: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="llmlab-kernel-") as folder:
            source, kernel = (
                Path(folder, Path(filename).name),
                Path(folder, "kernel.o"),
            )  # debug information keeps the name
            source.write_text(text, encoding="utf-8")
            compiler.compile(source, ["-x", "c++", *flags], kernel)
            compiler.link([kernel, _runtime(compiler, mode)], output)

    return cache.stored(name, make)


def _runtime(compiler: Compiler, mode: str) -> Path:
    """The engine, compiled once for each compiler and mode."""
    flags = compiler.runtime_flags(mode)
    name = cache.key(_own_text(), compiler.identity, *flags) + ".o"
    return cache.stored(name, lambda output: compiler.compile(RUNTIME / "runtime.cpp", flags, output))


@functools.cache
def _own_text() -> str:
    files = sorted(path for folder in (INCLUDE, RUNTIME) for path in folder.rglob("*") if path.is_file())
    return "".join(path.read_text(encoding="utf-8") for path in files)
