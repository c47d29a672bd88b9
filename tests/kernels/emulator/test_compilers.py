"""Which compiler is used, and what is said where there is none."""

import importlib.util
import sys

import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator import CompilerNotFoundError, PlatformError, compilers


@pytest.fixture
def no_choice(monkeypatch):
    monkeypatch.delenv("LLMLAB_CXX", raising=False)


def only(monkeypatch, *names, ziglang=False):
    monkeypatch.setattr(compilers.shutil, "which", lambda name: f"/bin/{name}" if name in names else None)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: object() if ziglang else None)


def test_the_systems_compiler_comes_first(no_choice, monkeypatch):
    only(monkeypatch, "g++", "clang++", ziglang=True)
    assert compilers.find_compiler() == compilers.Compiler(("g++",), True)
    only(monkeypatch, "clang++", ziglang=True)
    assert compilers.find_compiler() == compilers.Compiler(("clang++",), False)
    only(monkeypatch, ziglang=True)
    assert compilers.find_compiler().command == (sys.executable, "-m", "ziglang", "c++")


def test_no_compiler(no_choice, monkeypatch):
    only(monkeypatch)
    with pytest.raises(CompilerNotFoundError) as caught:
        emulator.Module("__global__ void f() {}")
    assert f"{sys.executable} -m pip install ziglang pyelftools" in str(caught.value)


def test_a_chosen_compiler(monkeypatch):
    monkeypatch.setenv("LLMLAB_CXX", "ccache clang++-19")
    assert compilers.find_compiler() == compilers.Compiler(("ccache", "clang++-19"), False)
    monkeypatch.setenv("LLMLAB_CXX", "/usr/bin/g++-13")
    assert compilers.find_compiler().is_gnu


@pytest.mark.parametrize(
    ("system", "machine", "words"),
    [
        ("win32", "AMD64", "wsl --install"),
        ("darwin", "arm64", "Linux container"),
        ("linux", "riscv64", "riscv64"),
    ],
)
def test_other_systems_are_refused(monkeypatch, system, machine, words):
    monkeypatch.setattr(compilers.sys, "platform", system)
    monkeypatch.setattr(compilers.platform, "machine", lambda: machine)
    with pytest.raises(PlatformError, match=words):
        compilers.find_compiler()


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs the ziglang package")
@pytest.mark.parametrize("mode", compilers.MODES)
def test_ziglang(monkeypatch, mode):
    monkeypatch.setenv("LLMLAB_CXX", f"{sys.executable} -m ziglang c++")
    module = emulator.Module(
        'extern "C" __global__ void f(float* y, int n) {\n  y[threadIdx.x] = n;\n}', mode=mode
    )
    y = np.zeros(4, np.float32)
    module.launch("f", 1, 4, [y, 7])
    assert (y == 7).all()
    if mode == "check":
        with pytest.raises(emulator.OutOfBoundsError) as caught:
            module.launch("f", 1, 5, [y, 7])
        assert (caught.value.array, caught.value.index, caught.value.line) == ("y", 4, 2)
