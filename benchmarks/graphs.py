"""Time on the device alone: llmlab's launches are captured in a CUDA graph and replayed, without the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cupy
import ml_dtypes
import numpy as np
from common import device_name, milliseconds

if TYPE_CHECKING:
    import torch

Run = Callable[[], Any]
RUNS = 5  # in a graph: a replay's own cost is shared out among them


def captured_by_cupy(run: Run) -> Run:
    """A replay of RUNS runs of `run`, which launches through CuPy; its scratch memory is the graph's own."""
    pool = cupy.cuda.MemoryPool()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, cupy.cuda.using_allocator(pool.malloc):
        run()  # compiles, and lets allocations find their place
        stream.begin_capture()
        for _ in range(RUNS):
            run()
        graph = stream.end_capture()
    stream.synchronize()

    def replay() -> None:
        graph.launch()

    replay.keeps = pool, run
    return replay


def repeated_by_torch(run: Run) -> Run:
    """RUNS runs of `run`, which launches through PyTorch, uncaptured: autograd keeps to the default stream.

    Its host runs ahead of the device as long as a launch takes longer there than here.
    """
    for _ in range(3):
        run()

    def repeat() -> None:
        for _ in range(RUNS):
            run()

    return repeat


def median_us(repeat: Run) -> float:
    """Microseconds of one run, of RUNS that follow each other on the default stream."""
    return milliseconds(repeat, repeats=20, warmup=3) * 1e3 / RUNS


def random(*shape: int) -> cupy.ndarray:
    """Standard normal bfloat16 numbers, made without a float32 copy of them all."""
    array = cupy.empty(shape, ml_dtypes.bfloat16)
    flat = array.reshape(-1)
    for start in range(0, flat.size, 1 << 28):
        part = flat[start : start + (1 << 28)]
        part[...] = cupy.random.standard_normal(part.size, dtype=np.float32)
    return array


def to_torch(array: cupy.ndarray) -> torch.Tensor:
    """The same memory as a PyTorch tensor, without gradient."""
    import torch

    return torch.from_dlpack(array).detach()


def compared(kernel: str, nbytes: int, copy: float, ours: Run, theirs: dict[str, Run]) -> dict[str, Any]:
    """Microseconds, percent of the speed of a copy, and the best peer's time over ours; printed as a line."""
    us = {"llmlab": median_us(captured_by_cupy(ours))}
    us |= {system: median_us(repeated_by_torch(run)) for system, run in theirs.items()}
    percent = {system: nbytes / time / copy / 1e4 for system, time in us.items()}
    ratio = min(us[system] for system in theirs) / us["llmlab"]
    cells = (f"{system} {us[system]:8.1f} µs {percent[system]:5.1f} %" for system in us)
    print(f"{kernel:<46}", *cells, f"ratio {ratio:.2f}", sep="   ", flush=True)
    return {
        "kernel": kernel,
        "bytes": nbytes,
        "us": {system: round(time, 1) for system, time in us.items()},
        "percent": {system: round(value, 1) for system, value in percent.items()},
        "ratio": round(ratio, 2),
    }


def liger() -> Any:
    """Liger-Kernel's ops, if the package is installed: one more peer, where it has such a kernel."""
    try:
        import liger_kernel.ops
    except ImportError:
        return None
    return liger_kernel.ops


def result_name(benchmark: str) -> str:
    """`layernorm_h200` for the benchmark layernorm on an NVIDIA H200."""
    return f"{benchmark}_{device_name().split()[-1].lower()}"
