"""What all benchmarks share: medians by device events, copy bandwidth as yardstick, results kept as data."""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def milliseconds(run: Callable[[], Any], repeats: int = 25, warmup: int = 5) -> float:
    """Median time of run() on the current CuPy stream, between device events.

    The data of run() should be larger than the L2 cache, or several runs would measure the cache.
    """
    import cupy

    for _ in range(warmup):
        run()
    events = [cupy.cuda.Event() for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    events[-1].synchronize()
    return statistics.median(cupy.cuda.get_elapsed_time(a, b) for a, b in pairwise(events))


def copy_bandwidth(nbytes: int = 2**31) -> float:
    """Terabytes a second of a device-to-device copy, bytes read and written both counted."""
    import cupy

    source = cupy.random.randint(0, 255, nbytes // 4, dtype=cupy.int32)
    target = cupy.empty_like(source)
    ms = milliseconds(lambda: cupy.copyto(target, source))
    return 2 * source.nbytes / ms / 1e9


def device_name() -> str:
    """The GPU's name, or the processor's where there is none."""
    try:
        import cupy

        if cupy.cuda.is_available():
            return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    except ImportError:
        pass
    return f"{_processor()}, {os.cpu_count()} cores"


def write_results(name: str, data: dict[str, Any]) -> Path:
    """Write data to results/<name>.json together with the date, the device, the command and the versions."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for package in ("numpy", "cupy-cuda13x", "torch", "nvidia-cudnn-frontend"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    record = {"date": time.strftime("%Y-%m-%d"), "device": device_name(), "command": _command(),
              "versions": versions}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**record, **data}, indent=1) + "\n")
    return path


def _command() -> str:
    """The command of this process as one would type it, without where things lie on this machine."""
    script, *words = sys.argv
    words = [str(Path(*Path(word).parts[-2:])) if Path(word).is_absolute() else word for word in words]
    return shlex.join(["python", f"benchmarks/{Path(script).name}", *words])


def _processor() -> str:
    """The processor's name as Linux knows it, otherwise what Python says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
