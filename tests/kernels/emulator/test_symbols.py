"""Addresses to lines: without addr2line, pyelftools gives the same answers."""

import re
from pathlib import Path

import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator import symbols

TEXT = (Path(__file__).parent / "faults.cu").read_text()


@pytest.fixture
def no_addr2line(monkeypatch):
    which = symbols.shutil.which
    monkeypatch.setattr(symbols.shutil, "which", lambda name: None if name == "addr2line" else which(name))


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("read_past_end", "float v = x[i];"),
        ("missing_barrier", "s[threadIdx.x] = x[threadIdx.x];"),
        ("inlined_past_end", "return values[i];"),
        ("misaligned", "reinterpret_cast<const float4*>(x + i + 1)"),
        ("shuffle_from_outside", "__shfl_down_sync(0x0000ffffu, v, 8)"),
    ],
)
def test_pyelftools_finds_the_line(no_addr2line, kernel, words):
    pytest.importorskip("elftools")
    module = emulator.Module(TEXT, mode="check", filename="faults.cu")  # new, so that nothing is remembered
    x = np.zeros(100 if kernel == "read_past_end" else 128, np.float32)
    with pytest.raises(emulator.KernelFault) as caught:
        module.launch(kernel, 1, 128, [x.copy(), x, x.size])
    assert words in TEXT.splitlines()[caught.value.line - 1]
    assert re.search(r"at faults\.cu:\d+", str(caught.value))


def test_without_either_the_rest_of_the_message_stays(no_addr2line, monkeypatch):
    monkeypatch.setattr(symbols.dwarf, "available", lambda: False)
    module = emulator.Module(TEXT, mode="check", filename="faults.cu")
    x = np.zeros(100, np.float32)
    with pytest.raises(emulator.OutOfBoundsError) as caught:
        module.launch("read_past_end", 1, 128, [x.copy(), x, 100])
    assert (caught.value.array, caught.value.index, caught.value.line) == ("x", 100, None)
