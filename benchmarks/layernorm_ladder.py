"""The rungs of chapter 5's ladder on a GPU: LayerNorm, 65,536 rows of 768 bfloat16 numbers.

    python benchmarks/layernorm_ladder.py

Times are medians by device events; percent is of the speed of a device-to-device copy in the same run,
counting only the bytes that must move: forward reads x and writes y, backward reads dy and x and writes dx.
The package's kernels and the ladder's are captured in a CUDA graph. The NumPy text on CuPy is not: it calls
cuBLAS, and its kernels are long enough to hide the host. Every rung is compared with the text in float64 on
part of the rows, and run twice: do both runs give the same bits? Results go to
benchmarks/results/layernorm_ladder_h200.json (or the GPU's name).
"""

from __future__ import annotations

from collections.abc import Callable

import cupy
import numpy as np
from common import copy_bandwidth, milliseconds, write_results
from graphs import captured_by_cupy, median_us, random, result_name

from llmlab.kernels import layernorm_ladder as ladder
from llmlab.ops import layernorm

N, C = 65_536, 768
PART = 4_096  # rows that are compared with float64

FORWARD = {
    "one thread a row": ladder.thread_forward,
    "one warp a row": ladder.warp_forward,
    "16 bytes a lane, row in registers": ladder.register_forward,
    "the package's": layernorm.forward,
}
BACKWARD = {
    "dx and the sums apart": ladder.separate_backward,
    "fused, sums in two stages": ladder.fused_backward,
    "the package's": layernorm.backward,
}
TEXT = "the NumPy text on CuPy"


def main() -> None:
    copy = copy_bandwidth()
    x, dy, weight, bias = random(N, C), random(N, C), random(C), random(C)
    y, mean, rstd = layernorm.forward(x, weight, bias)
    forward, backward = (x, weight, bias), (dy, x, weight, mean, rstd)
    must_move = {"copy": 2 * x.nbytes, "forward": 2 * x.nbytes, "backward": 3 * x.nbytes}
    rows = []

    def record(part: str, rung: str, us: float, **found: float | bool) -> None:
        us, percent = round(us, 1), round(must_move[part] / us / copy / 1e4, 1)
        rows.append({"pass": part, "rung": rung, "us": us, "percent": percent, **found})
        print(f"{part:<9} {rung:<34} {us:9.1f} µs {percent:6.1f} %   {found}", flush=True)

    record("copy", "of x", median_us(captured_by_cupy(lambda: cupy.copyto(y, x))))
    record("forward", TEXT, 1e3 * milliseconds(lambda: layernorm.forward.text(*forward)))
    record("backward", TEXT, 1e3 * milliseconds(lambda: layernorm.backward.text(*backward)))
    for name, rung in FORWARD.items():
        run = captured_by_cupy(lambda rung=rung: rung(*forward))
        found = {"error": forward_error(rung, *forward), "same_bits": same_bits(rung, forward)}
        record("forward", name, median_us(run), **found)
    for name, rung in BACKWARD.items():
        run = captured_by_cupy(lambda rung=rung: rung(*backward))
        found = {"error": backward_error(rung, *backward), "same_bits": same_bits(rung, backward)}
        record("backward", name, median_us(run), **found)
    shape = {"N": N, "C": C, "dtype": "bfloat16", "bytes": must_move}
    write_results(result_name("layernorm_ladder"), {"copy_TB_per_s": round(copy, 3), **shape, "rows": rows})


def forward_error(rung: Callable, x, weight, bias) -> float:
    """The largest error of y, relative to its size or 1, against the text in float64."""
    y = rung(x[:PART], weight, bias)[0]
    return relative(y, layernorm.forward.text(*wide(x[:PART], weight, bias))[0])


def backward_error(rung: Callable, dy, x, weight, mean, rstd) -> float:
    """The largest error of dx, dweight and dbias, each relative to its largest element."""
    dy, x, mean, rstd = dy[:PART], x[:PART], mean[:PART], rstd[:PART]
    right = layernorm.backward.text(*wide(dy, x, weight, mean, rstd))
    return max(map(relative, rung(dy, x, weight, mean, rstd), right))


def same_bits(rung: Callable, arguments: tuple[cupy.ndarray, ...]) -> bool:
    """Whether two runs give the same results, to the last bit."""
    pairs = zip(rung(*arguments), rung(*arguments))
    return all(cupy.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in pairs)


def relative(got: cupy.ndarray, right: np.ndarray) -> float:
    error = np.abs(got.get().astype(np.float64) - right).max() / np.abs(right).max()
    return float(f"{error:.1e}")


def wide(*arrays: cupy.ndarray) -> list[np.ndarray]:
    return [a.get().astype(np.float64) for a in arrays]


if __name__ == "__main__":
    main()
