"""The emulator's profile against Nsight Compute, on the same kernels and sizes.

python benchmarks/profile_vs_ncu.py            # measure with ncu, write results/profile_vs_ncu.json
python benchmarks/profile_vs_ncu.py launch     # what ncu runs: every kernel once, through CuPy
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
CODE = (HERE / "profile_vs_ncu.cu").read_text()

METRICS = {
    "read_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "read_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "write_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "write_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "reduce_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "reduce_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
    "shared_read_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_write_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_read_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_write_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "shared_atomic_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
}


@dataclass(frozen=True)
class Launch:
    """A kernel with its grid, block and arguments."""

    label: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple


def patterns() -> list[tuple[str, np.ndarray]]:
    """Where each lane of a warp reaches in shared memory; -1: it does not."""
    rng = np.random.default_rng(0)
    lane = np.arange(32)
    alternate = np.where(lane % 2, -1, lane)
    few = rng.integers(0, 1024, 32)
    few[4:] = -1
    found = [(f"random {i}", rng.permutation(1024)[:32]) for i in range(4)]
    found += [(f"repeats {i}", rng.integers(0, 24, 32)) for i in range(3)]
    found += [
        ("every other lane", alternate),
        ("four lanes", few),
        ("pairs", lane // 2),
        ("quads", lane // 4),
        ("reversed", 31 - lane),
        ("halves apart", lane % 16 + 32 * (lane // 16)),
        ("halves alike", lane % 16),
        ("quarters alike", lane % 8),
        ("rows", 32 * (lane % 8) + lane // 8),
        ("two apart alike", lane & ~2),
        ("pairs in one half", np.where(lane < 16, lane // 2, lane + 64)),
        ("pairs but one", np.where(lane == 5, 200, lane // 2)),
        ("pairs, then two apart", np.where(lane < 16, lane // 2, lane & ~2)),
        ("some lanes in pairs", np.where(lane % 4 == 3, -1, lane // 2)),
        ("last lane apart", np.where(lane == 31, 7, lane)),
    ]
    return [(name, index.astype(np.int32)) for name, index in found]


def distinct(index: np.ndarray) -> bool:
    """Whether no two lanes reach the same place."""
    places = index[index >= 0]
    return np.unique(places).size == places.size


def launches() -> list[Launch]:
    """Every launch that is compared; arrays are NumPy's."""
    n, side = 1 << 15, 256
    floats = lambda count: np.arange(count, dtype=np.float32)  # noqa: E731
    pixels = (np.arange(n, dtype=np.uint64) * 2654435761 >> 7).astype(np.uint8)
    vectors = (("float", 1), ("float2", 2), ("float4", 4))
    shared = [
        Launch(f"shared_strided<{name}>, stride {stride}", f"shared_strided<{name}>", (1,), (128,),
               (np.zeros(128 * lanes, np.float32), floats(1024 * lanes), np.int32(stride)))
        for name, lanes in vectors for stride in (0, 1, 2, 3, 4, 8, 32)
    ]  # fmt: skip
    gathers = [
        Launch(f"shared_gather<{name}>, {pattern}", f"shared_gather<{name}>", (1,), (32,),
               (np.zeros(32 * lanes, np.float32), floats(1024 * lanes), index))
        for name, lanes in vectors for pattern, index in patterns()
    ]  # fmt: skip
    scatters = [
        Launch(f"shared_scatter<{name}>, {pattern}", f"shared_scatter<{name}>", (1,), (32,),
               (np.zeros(1024 * lanes, np.float32), floats(1024 * lanes), index))
        for name, lanes in vectors for pattern, index in patterns() if distinct(index)
    ]  # fmt: skip

    def copy(label: str, kernel: str, x: int, *numbers: int, lanes: int = 1) -> Launch:
        values = (floats(lanes * n), floats(lanes * x), *map(np.int32, numbers))
        return Launch(label, kernel, (n // 256,), (256,), values)

    def transpose(kernel: str) -> Launch:
        square = floats(side * side), floats(side * side), np.int32(side)
        return Launch(kernel, kernel, (side // 32, side // 32), (32, 8), square)

    return [
        copy("copy", "copy", n, n),
        copy("copy, tail", "copy", n, n - 77),
        copy("copy_from_offset 1", "copy_from_offset", n + 32, n, 1),
        copy("copy_strided 2", "copy_strided", 2 * n, n, 2),
        copy("copy_strided 33", "copy_strided", 33 * n, n, 33),
        copy("copy_by_four", "copy_by_four", n, n, lanes=4),
        *(transpose(kernel) for kernel in ("transpose_naive", "transpose_tiled<0>", "transpose_tiled<1>")),
        Launch("histogram", "histogram", (16,), (256,), (np.zeros(256, np.uint32), pixels, np.int32(n))),
        Launch("row_sums", "row_sums", (64,), (256,), (floats(64), floats(64 * 1000), np.int32(1000))),
        *shared,
        *gathers,
        *scatters,
    ]  # fmt: skip


def expressions() -> list[str]:
    return sorted({launch.kernel for launch in launches()})


def launch_all() -> None:
    """Run every launch once on the GPU."""
    import cupy

    module = cupy.RawModule(code=CODE, options=("-std=c++17",), name_expressions=expressions())
    for launch in launches():
        args = tuple(cupy.asarray(a) if isinstance(a, np.ndarray) and a.ndim else a for a in launch.args)
        module.get_function(launch.kernel)(launch.grid, launch.block, args)
    cupy.cuda.Device().synchronize()


def emulated(module, launch: Launch) -> dict[str, int]:
    """The same counters from the emulator's profile; ``module`` is CODE compiled with mode="profile"."""
    profile = module.launch(launch.kernel, launch.grid, launch.block, launch.args)
    counts = {}
    for name, access in (("read", "read"), ("write", "write"), ("reduce", "atomic")):
        of_global = profile.total("global", access)
        counts |= {f"{name}_requests": of_global.requests, f"{name}_sectors": of_global.sectors}
    for name in ("read", "write"):
        of_shared = profile.total("shared", name)
        counts |= {
            f"shared_{name}_wavefronts": of_shared.wavefronts,
            f"shared_{name}_conflicts": of_shared.bank_conflicts,
        }
    return counts | {"shared_atomic_wavefronts": profile.total("shared", "atomic").wavefronts}


def measure() -> list[dict]:
    """Nsight Compute's counters for every launch, in order."""
    command = [
        "ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
        "--kernel-name-base", "function",
        "--kernel-name", "regex:^(copy|transpose|histogram|row_sums|shared_)",
        "--metrics", ",".join(METRICS.values()), sys.executable, __file__, "launch",
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True)
    output = result.stdout
    if result.returncode or '"ID"' not in output:
        raise SystemExit(f"ncu failed:\n{output}{result.stderr}")
    table = output[output.index('"ID"') :]
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["ID"]]
    counted = [
        {name: _number(row.get(metric, "")) for name, metric in METRICS.items() if row.get(metric)}
        for row in rows
    ]
    return [{"launch": launch.label, **counts} for launch, counts in zip(launches(), counted, strict=True)]


def _number(text: str) -> int | None:
    try:
        return round(float(text.replace(",", "")))
    except ValueError:
        return None


def main() -> None:
    if sys.argv[1:] == ["launch"]:
        launch_all()
        return
    sys.path.insert(0, str(HERE.parent))
    from benchmarks.common import write_results

    measured = measure()
    print(json.dumps(measured, indent=1))
    write_results("profile_vs_ncu", {"metrics": METRICS, "launches": measured})


if __name__ == "__main__":
    main()
