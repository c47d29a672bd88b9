"""llmlab's training step taken apart: what each kind of kernel takes, against the least that it could.

    python benchmarks/step_apart.py          # reads results/, prints a table, draws docs/step-h200.png

The floor of a matrix product is its FLOPs at the fastest rate that `kernels.py` saw of any product, which one
alone may beat; attention's counts the half of the scores that is not masked, 2 products forward and 5
backward, at the same rate. Everything else moves bytes, at the speed of a copy. AdamW is not an action of the
engine: its time is that of `kernels.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parents[1] / "docs" / "step-h200.png"
COLOURS = {"matrix products": "#0072B2", "attention": "#E69F00", "everything else": "#009E73"}
L, H, C, T, V = 12, 12, 768, 1024, 50304


def floors(N: int, flops: float, bandwidth: float, parameters: int) -> dict[str, tuple[str, float]]:
    """Kind of work -> its group and the least milliseconds; `flops` a second, `bandwidth` bytes a second."""

    def product(C_in: int, C_out: int) -> float:
        return 2 * N * C_in * C_out / flops * 1e3

    def moved(numbers: int) -> float:  # in bfloat16
        return 2 * numbers / bandwidth * 1e3

    scores = 2 * N * T * C / 2 / flops * 1e3  # one product of T x T scores over all heads, causal
    sizes = {"c_attn": (C, 3 * C), "c_fc": (C, 4 * C)}
    table = {}
    for name, (a, b) in sizes.items():
        table[f"linear {name} forward"] = "matrix products", L * product(a, b)
        table[f"linear {name} backward"] = "matrix products", 2 * L * product(a, b)
    projections = L * (product(C, C) + product(4 * C, C))  # attention's and the MLP's have one name
    table["linear c_proj forward"] = "matrix products", projections
    table["linear c_proj backward"] = "matrix products", 2 * projections
    table["linear head forward"] = "matrix products", product(C, V)
    table["linear head backward"] = "matrix products", 2 * product(C, V)
    table["attention forward"] = "attention", 2 * L * scores
    table["attention backward"] = "attention", 5 * L * scores
    other = {
        "residual_layernorm forward": 2 * L * 4 * N * C, "residual_layernorm backward": 2 * L * 4 * N * C,
        "gelu forward": L * 2 * N * 4 * C, "gelu backward": L * 3 * N * 4 * C,
        "cross_entropy forward_backward": 2 * N * V,
        "layernorm forward": 2 * N * C,
        "layernorm backward": 4 * N * C,  # adds the stream's own gradient
        "embedding forward": N * C, "embedding backward": N * C,
    }
    table |= {kind: ("everything else", moved(numbers)) for kind, numbers in other.items()}
    table["adamw"] = "everything else", 34 * parameters / bandwidth * 1e3  # 4 read twice, 12 read, 14 written
    return table


def measured_and_least() -> tuple[dict[str, float], dict[str, tuple[str, float]]]:
    """Kind of work -> milliseconds of a step, and its group and floor."""
    step = json.loads((RESULTS / "train_gpu.json").read_text())
    kernels = json.loads((RESULTS / "kernels_h200.json").read_text())
    row = next(r for r in step["rows"] if (r["system"], r["model"], r["B"]) == ("llmlab", "124M", 64))
    adamw = next(r for r in kernels["rows"] if "AdamW" in r["kernel"] and "124 M" in r["kernel"])
    ways = ("forward", "d-input", "d-weight")
    rates = [product[way]["llmlab"] for product in kernels["matrix_products"] for way in ways]
    measured = row["apart_ms"] | {"adamw": adamw["us"]["llmlab"] / 1e3}
    bandwidth = step["copy_bandwidth_TBps"] * 1e12
    least = floors(64 * T, max(rates) * 1e12, bandwidth, adamw["bytes"] // 34)
    if measured.keys() != least.keys():
        raise SystemExit(f"kinds without a floor, or floors without a kind: {measured.keys() ^ least.keys()}")
    return measured, least


def main() -> None:
    measured, least = measured_and_least()
    print(f"{'':34}{'ms':>8}{'floor':>8}{'of it':>7}")
    for kind in sorted(measured, key=lambda kind: -measured[kind]):
        floor = least[kind][1]
        print(f"{kind:34}{measured[kind]:8.2f}{floor:8.2f}{floor / measured[kind]:7.0%}")
    print(f"{'sum':34}{sum(measured.values()):8.2f}{sum(f for _, f in least.values()):8.2f}")
    draw(measured, least)


def draw(measured: dict[str, float], least: dict[str, tuple[str, float]]) -> None:
    figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
    bars = {"floor": {k: f for k, (_, f) in least.items()}, "measured": measured}
    for y, values in enumerate(bars.values()):
        left = 0.0
        for group, colour in COLOURS.items():
            kinds = sorted((k for k in values if least[k][0] == group), key=lambda k: -values[k])
            for number, kind in enumerate(kinds):
                label = group if y == 0 and number == 0 else None
                axes.barh(y, values[kind], left=left, color=colour, edgecolor="white", label=label)
                left += values[kind]
        axes.text(left + 1, y, f"{left:.0f} ms", va="center")
    axes.set_yticks(range(len(bars)), bars)
    axes.set_xlabel("milliseconds of a step: GPT-2 124M, 64 x 1024 tokens, bfloat16, NVIDIA H200")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
