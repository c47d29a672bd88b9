"""What the kernels of chapter 90 do on a GPU: how often the race strikes, and what coalescing is worth.

    python benchmarks/cuda_on_a_laptop.py

The kernels are read from the chapter's text. Results go to benchmarks/results/cuda-on-a-laptop.json.
"""

from __future__ import annotations

import re
from pathlib import Path

import cupy
import numpy as np
from common import copy_bandwidth, milliseconds, write_results

from llmlab import kernels

CHAPTER = Path(__file__).parent.parent / "chapters" / "90-cuda-on-a-laptop.md"
LAUNCHES = 1000


def main() -> None:
    texts = dict(re.findall(r'^(\w+) = r"""\n(.*?)"""', CHAPTER.read_text(), re.MULTILINE | re.DOTALL))
    texts["padded"] = texts["tiled"].replace("tile[32][32]", "tile[32][33]")
    copy = copy_bandwidth()
    transpose = {name: transpose_percent(texts[name], copy) for name in ("naive", "tiled", "padded")}
    wrong = race(texts["shares_text"])
    print(f"copy {copy:.2f} TB/s; transposition, percent of it: {transpose}; wrong rows of the race: {wrong}")
    write_results(
        "cuda-on-a-laptop",
        {"copy_TB_per_s": round(copy, 3), "transpose_8192_percent_of_copy": transpose, "race": wrong},
    )


def transpose_percent(text: str, copy: float) -> float:
    """Percent of the copy's speed at which a matrix of 8192 x 8192 floats is transposed."""
    n = 8192
    x = cupy.arange(n * n, dtype=np.float32).reshape(n, n)
    y = cupy.empty_like(x)
    kernel = kernels.RawModule(code=text).get_function("transpose")
    ms = milliseconds(lambda: kernel((n // 32, n // 32), (32, 32), (y, x, n, n)))
    assert (y == x.T).all()
    return round(100 * 2 * x.nbytes / ms / 1e9 / copy, 1)


def race(text: str) -> dict[str, int]:
    """How many launches, and how many rows in all, come out wrong of the kernel that lacks a barrier."""
    x = cupy.random.default_rng(0).random((4, 1000), np.float32)
    right = x / x.sum(1, keepdims=True)
    kernel = kernels.RawModule(code=text).get_function("shares")
    y = cupy.empty_like(x)
    wrong_rows = []
    for _ in range(LAUNCHES):
        kernel((4,), (128,), (y, x, 1000))
        wrong_rows.append(int((~cupy.isclose(y, right, rtol=1e-4).all(1)).sum()))
    launches = int(np.count_nonzero(wrong_rows))
    return {"launches": LAUNCHES, "wrong_launches": launches, "wrong_rows": sum(wrong_rows)}


if __name__ == "__main__":
    main()
