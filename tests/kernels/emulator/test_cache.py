"""The cache of compiled modules: by content, atomic, shared by processes, readable where not writable."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator import cache, compilers

ROOT = Path(__file__).parents[3]
FILL = 'extern "C" __global__ void fill(float* y) { y[threadIdx.x] = %s; }'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LLMLAB_EMULATOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(value):
    y = np.zeros(4, np.float32)
    emulator.Module(FILL % value).launch("fill", 1, 4, [emulator.Out(y)])
    return y[0]


def compilations(monkeypatch):
    made = []
    compile_ = compilers.Compiler.compile

    def count(self, source, flags, output):
        made.append(source.name)
        compile_(self, source, flags, output)

    monkeypatch.setattr(compilers.Compiler, "compile", count)
    return made


def test_the_same_text_is_compiled_once(folder, monkeypatch):
    made = compilations(monkeypatch)
    assert [fill(1), fill(1), fill(2)] == [1, 1, 2]
    assert made == ["kernel.cu", "runtime.cpp", "kernel.cu"]
    assert {path.suffix for path in folder.iterdir()} == {".so", ".o"}


def test_options_and_modes_are_part_of_the_key(folder, monkeypatch):
    made = compilations(monkeypatch)
    for options, mode in [((), "fast"), (("-DA",), "fast"), ((), "check")]:
        emulator.Module(FILL % 1, options, mode=mode)
    assert made.count("kernel.cu") == 3


def test_a_failure_leaves_nothing_behind(folder):
    with pytest.raises(ZeroDivisionError):
        cache.stored("name", lambda path: 1 / 0)
    assert list(folder.iterdir()) == []


def test_two_processes_at_once(folder):
    script = (
        "import numpy as np; from llmlab.kernels import emulator; y = np.zeros(4, np.float32);"
        f"emulator.Module({FILL % 5!r}).launch('fill', 1, 4, [y]); print(y.sum())"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    results = [process.communicate() for process in processes]
    assert [out.strip() for out, _ in results] == ["20.0"] * 3, results
    assert len(list(folder.iterdir())) == 2  # one module, one engine, no drafts


def test_a_cache_that_cannot_be_written_is_read(folder, monkeypatch):
    made = compilations(monkeypatch)
    assert fill(1) == 1
    before = set(folder.iterdir())
    mkstemp = cache.tempfile.mkstemp

    def refuse(*args, dir=None, **kwargs):
        if Path(dir) == folder:
            raise PermissionError(13, "read-only", str(dir))
        return mkstemp(*args, dir=dir, **kwargs)

    monkeypatch.setattr(cache.tempfile, "mkstemp", refuse)
    made.clear()
    assert fill(1) == 1 and made == []  # found
    assert fill(3) == 3 and fill(3) == 3  # made once, elsewhere
    assert made == ["kernel.cu"]
    assert set(folder.iterdir()) == before


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(folder):
    folder.mkdir()
    folder.chmod(0o500)
    assert fill(4) == 4
    assert list(folder.iterdir()) == []


def test_the_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("LLMLAB_EMULATOR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "llmlab" / "emulator"
