"""Every fault, planted alone, is found with the right array, index and line; its twin without it passes."""

import mmap
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator import (
    AssertionFault,
    DivergentBarrierError,
    DivisionByZeroError,
    EndlessLoopError,
    InactiveLaneError,
    LimitError,
    MisalignedError,
    NeverWrittenError,
    Out,
    OutOfBoundsError,
    RaceError,
    UninitialisedError,
)
from llmlab.kernels.emulator.compilers import find_compiler

TEXT = (Path(__file__).parent / "faults.cu").read_text()
N = 128


@dataclass
class Fault:
    name: str
    error: type
    array: str | None = None
    index: int | None = None
    thread: int | None = None
    words: str = ""
    n: int = N  # passed to the kernel
    size: int = N  # elements of x and y
    grid: int = 1
    out: bool = True  # y is an output that the kernel must fill
    shared_mem: int = 0
    x: str = "array"


FAULTS = [
    Fault("read_past_end", OutOfBoundsError, "x", 100, 100, "x has 100 elements", n=100, size=100),
    Fault("write_past_end", OutOfBoundsError, "y", 100, 100, "y has 100 elements", n=100, size=100),
    Fault("read_before_start", OutOfBoundsError, "x", -1, 0, "negative"),
    Fault("atomic_past_end", OutOfBoundsError, "y", 100, 100, "atomic update", n=100, size=100, out=False),
    Fault("vector_past_end", OutOfBoundsError, "x", 126, 31, "16 bytes", n=126, size=126),
    Fault("inlined_past_end", OutOfBoundsError, "x", 128, 127, out=False),
    Fault("null_pointer", OutOfBoundsError, "x", None, 0, "x was given as None", x="none"),
    Fault("shared_past_end", OutOfBoundsError, "s", 128, 127, "shared s"),
    Fault("shared_row_overrun", OutOfBoundsError, "tile", 16, 16, "16 elements"),
    Fault("dynamic_shared_overrun", OutOfBoundsError, "row", 64, 64, "64 elements", shared_mem=256),
    Fault("local_past_end", OutOfBoundsError, "local", 4, 0, "4 elements", n=5),
    Fault("foreign_local", OutOfBoundsError, None, None, 1, "another thread's local"),
    Fault("misaligned", MisalignedError, "x", 1, 0, "16 bytes", out=False),
    Fault("misaligned_shared", MisalignedError, "s", 1, 1, "8 bytes"),
    Fault("missing_barrier", RaceError, "s", 64, 64, "__syncthreads"),
    Fault("missing_second_barrier", RaceError, "part", 0, 1, "__syncthreads"),
    Fault("missing_syncwarp", RaceError, "s", 0, 1, "__syncwarp"),
    Fault("half_warps", RaceError, "s", 31, 31, "__syncwarp"),
    Fault("global_race", RaceError, "y", 0, 1, "within a warp", out=False),
    Fault("block_race", RaceError, "y", 0, 0, "between blocks", grid=2, out=False),
    Fault("block_reads_neighbour", RaceError, "y", 127, 0, "between blocks", grid=2, size=2 * N),
    Fault("missing_fence", RaceError, "y", 1, 0, "between blocks", grid=3, out=False),
    Fault("exit_before_barrier", DivergentBarrierError, words="(127, 0, 0): returned", n=100, out=False),
    Fault("barrier_in_branch", DivergentBarrierError, words="(127, 0, 0): wait at __syncthreads"),
    Fault("barrier_in_loop", DivergentBarrierError, words="returned", n=200, size=200, out=False),
    Fault("barrier_against_shuffle", DivergentBarrierError, words="wait at __shfl_xor_sync"),
    Fault("shuffle_from_outside", InactiveLaneError, None, None, 8, "lane 16"),
    Fault("shuffle_mask_too_wide", InactiveLaneError, None, None, 0, "names lane 16"),
    Fault("shuffle_outside_mask", InactiveLaneError, None, None, 16, "not in its own mask"),
    Fault("shuffle_after_return", InactiveLaneError, None, None, 96, "lane 4", n=100, out=False),
    Fault("shared_never_written", UninitialisedError, "s", 100, 100, "nothing has written"),
    Fault("output_read_first", UninitialisedError, "y", 0, 0, "is an output"),
    Fault("output_never_written", NeverWrittenError, "y", 127, None, "1 of 128"),
    Fault("missing_copy_wait", UninitialisedError, "s", 0, 0, "cp.async", size=4 * N, out=False),
    Fault("too_much_static_shared", LimitError, "second", None, 0, "48 KiB"),
    Fault("too_much_shared", LimitError, "small", None, 0, "227 KiB", shared_mem=232448 - 512),
    Fault("division_by_zero", DivisionByZeroError, None, None, 0),
    Fault("remainder_by_zero", DivisionByZeroError, None, None, 0),
    Fault("endless_loop", EndlessLoopError, None, None, 0, out=False),
    Fault("endless_wait", EndlessLoopError, None, None, 0, "waits for another block", out=False),
    Fault("failed_assert", AssertionFault, None, None, 1, "x[threadIdx.x] < 1.0f"),
]  # fmt: skip


def launch(module: emulator.Module, fault: Fault, name: str) -> np.ndarray:
    x = np.arange(fault.size, dtype=np.float32)
    y = np.zeros(fault.size, np.float32)
    args = [Out(y) if fault.out else y, x if fault.x == "array" else None, fault.n]
    module.launch(name, fault.grid, N, args, fault.shared_mem, time_limit=0.3)
    return y


def marked_line(name: str) -> int | None:
    """The line that ends in `// FAULT` nearest to the kernel: in it, or in the function it calls."""
    lines = TEXT.split("\n")
    start = next(i for i, line in enumerate(lines) if re.search(rf"__global__ void {name}\(", line))
    if "{" in lines[start] and "}" in lines[start]:
        return 1 + max(i for i in range(start) if lines[i].endswith("// FAULT"))
    end = next(i for i in range(start, len(lines)) if lines[i] == "}")
    marks = [i + 1 for i in range(start, end) if lines[i].endswith("// FAULT")]
    return marks[0] if marks else None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_found(compiled, fault):
    module = compiled("faults.cu", "check")
    if fault.name.startswith("misaligned") and not find_compiler().is_gnu:
        pytest.skip("clang copies a vector as bytes, and its alignment is not seen")
    with pytest.raises(fault.error) as caught:
        launch(module, fault, fault.name)
    error = caught.value
    assert error.kernel == fault.name
    assert error.array == fault.array
    if fault.index is not None:
        assert error.index == fault.index
    if fault.thread is not None:
        assert error.thread == (fault.thread, 0, 0)
    assert fault.words in str(error)
    if fault.error is not NeverWrittenError:
        assert error.block is not None
    line = marked_line(fault.name)
    if line:
        assert (error.file, error.line) == ("faults.cu", line)
        assert f"faults.cu:{line}" in str(error)
    assert error.hint in str(error)


FILLING_TWINS = {
    "read_past_end", "write_past_end", "vector_past_end", "null_pointer", "shared_past_end", "local_past_end",
    "missing_barrier", "missing_syncwarp", "output_read_first", "output_never_written", "division_by_zero",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_twin_passes(compiled, fault):
    fault = Fault(**{**fault.__dict__, "out": fault.name in FILLING_TWINS})
    launch(compiled("faults.cu", "check"), fault, f"{fault.name}_right")


def test_every_kernel_of_the_file_is_tried():
    names = set(re.findall(r'extern "C" __global__ void (?:__launch_bounds__\(128\) )?(\w+)\(', TEXT)) - {
        "bounded"
    }
    assert names == {f.name for f in FAULTS} | {f"{f.name}_right" for f in FAULTS}


@pytest.mark.parametrize(
    ("grid", "block", "shared_mem", "words"),
    [
        (1, 2048, 0, "2048 along x"),
        (1, (32, 64), 0, "2048 threads"),
        (1, 256, 0, "__launch_bounds__ allow 128"),
        (1, (1, 1, 65), 0, "65 along z"),
        ((1, 65536), 32, 0, "65536 along y"),
        (1, 32, 227 * 1024 + 1, "227 KiB"),
        (1, 0, 0, "at least 1"),
        ((3, 0), 32, 0, "at least 1"),
    ],
)
def test_limits_of_a_launch(compiled, grid, block, shared_mem, words):
    x = np.zeros(N, np.float32)
    with pytest.raises(LimitError, match=re.escape(words)) as caught:
        compiled("faults.cu", "check").launch("bounded", grid, block, [x.copy(), x, N], shared_mem)
    assert caught.value.kernel == "bounded"


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for low memory")
def test_arrays_near_address_0_are_not_taken_for_null_pointers(compiled, monkeypatch):
    """A Python that is no position-independent executable, such as Debian's, has its heap there."""
    low_32_bits, addresses = 0x40, []

    def low(size, dtype):
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | low_32_bits)
        addresses.append(np.frombuffer(memory, dtype).ctypes.data)
        return np.frombuffer(memory, dtype)

    module, x, y = compiled("faults.cu", "check"), np.ones(100, np.float32), np.zeros(100, np.float32)
    monkeypatch.setattr(np, "empty", low)  # where the emulator copies what it watches
    with pytest.raises(OutOfBoundsError, match="x has 100 elements"):
        module.launch("read_past_end", 1, N, [Out(y), x, 100])
    assert len(addresses) == 2 and max(addresses) < 2**32


def test_a_message_reads_well(compiled):
    x = np.zeros((4, 25), np.float32)
    with pytest.raises(OutOfBoundsError) as caught:
        compiled("faults.cu", "check").launch("read_past_end", 1, N, [x.copy(), x, 100])
    line = marked_line("read_past_end")
    assert str(caught.value) == (
        "read_past_end: out-of-bounds read of x[100]: x has 100 elements\n"
        "  by thread (100, 0, 0) of block (0, 0, 0)\n"
        f"  at faults.cu:{line}\n"
        f"  {line:>6} |   float v = x[i];  // FAULT\n"
        "Guard the access with the array's length, as in `if (i < n)`; "
        "the last block usually reaches past the end."
    )


def test_both_sides_of_a_race_are_shown(compiled):
    x = np.zeros(N, np.float32)
    with pytest.raises(RaceError) as caught:
        compiled("faults.cu", "check").launch("missing_barrier", 1, N, [x.copy(), x, N])
    assert "the read: at faults.cu" in str(caught.value)
    assert "y[threadIdx.x] = s[N - 1 - threadIdx.x];" in str(caught.value)


def test_a_lost_update_asks_for_an_atomic(compiled):
    x = np.zeros(N, np.float32)
    with pytest.raises(RaceError, match="atomicAdd"):
        compiled("faults.cu", "check").launch("block_race", 2, N, [x.copy(), x, N])


def test_an_inlined_fault_names_the_line_of_the_function(compiled):
    x = np.zeros(N, np.float32)
    with pytest.raises(OutOfBoundsError) as caught:
        compiled("faults.cu", "check").launch("inlined_past_end", 1, N, [x.copy(), x, N])
    assert "return values[i];" in str(caught.value)


# ---- what fast mode can tell

FOUND_FAST = (
    "exit_before_barrier", "barrier_in_branch", "barrier_in_loop", "shuffle_from_outside",
    "shuffle_mask_too_wide", "shuffle_after_return", "too_much_shared", "too_much_static_shared",
    "endless_loop", "failed_assert",    "division_by_zero", "null_pointer", "misaligned", "write_past_end",
)  # fmt: skip


@pytest.mark.parametrize("name", FOUND_FAST)
def test_fast_mode_survives(compiled, name):
    fault = next(fault for fault in FAULTS if fault.name == name)
    with pytest.raises(emulator.KernelFault) as caught:
        launch(compiled("faults.cu", "fast"), fault, name)
    assert caught.value.kernel == name
