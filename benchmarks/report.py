"""Writes the tables of benchmarks/README.md from the files in results/, so that no number is copied by hand.

    python benchmarks/report.py

A table stands in the README between <!-- report: NAME --> and <!-- /report -->; NAME is a function here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import step_apart

from llmlab.book.chapter.tables import markdown

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent / "README.md"
PLACE = re.compile(r"(<!-- report: (\w+) -->\n).*?(<!-- /report -->)", re.DOTALL)
PEERS = {"compile": "torch.compile", "graphs": "its CUDA graphs", "eager": "PyTorch eager"}


def read(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return markdown(head, rows) + "\n"


def step() -> str:
    """Whole steps of 124M: thousand tokens a second, and device memory, by batch and system."""
    rows = [row for name in ("train_gpu", "train_gpu_32") for row in read(name)["rows"]]
    return _steps(rows, ["llmlab", *PEERS])


def step_774M() -> str:
    rows = [row for B in (32, 64) for row in read(f"train_gpu_774M_{B}")["rows"]]
    return _steps(rows, ["llmlab", "compile", "eager"])


def _steps(rows: list[dict], systems: list[str]) -> str:
    def cell(B: int, system: str) -> str:
        row = next((r for r in rows if (r["B"], r["system"]) == (B, system)), None)
        if row is None:
            return ""
        if "ms" not in row:
            return "does not fit"
        tensors = f"{row['tensors_gib']:.1f}; " if "tensors_gib" in row else ""
        return f"{row['tokens_per_s'] / 1e3:.1f} ({tensors}{row['peak_gib']:.1f})"

    sizes = sorted({row["B"] for row in rows})
    head = ["B × 1024 tokens", *(PEERS.get(system, system) for system in systems)]
    return table(head, ([str(B), *(cell(B, system) for system in systems)] for B in sizes))


def memory() -> str:
    """What recomputation and logits in chunks save and cost, at B = 64."""
    files = "train_gpu", "train_gpu_rows", "train_gpu_selective", "train_gpu_full", "train_gpu_full_rows"
    lines = []
    for name in files:
        row = next(r for r in read(name)["rows"] if (r["system"], r["B"]) == ("llmlab", 64))
        rows = f"{row['logits_rows']:,}" if row.get("logits_rows") else "all"
        lines.append([row["policy"], rows, f"{row['tokens_per_s'] / 1e3:.1f}", f"{row['peak_gib']:.1f}"])
    return table(["--recompute", "--logits-rows", "thousand tokens/s", "GiB"], lines)


def apart() -> str:
    """The step at B = 64, kind by kind."""
    measured, least = step_apart.measured_and_least()
    kinds = sorted(measured, key=lambda kind: -measured[kind])
    rows = [(kind, measured[kind], least[kind][1]) for kind in kinds]
    rows.append(("sum", sum(measured.values()), sum(floor for _, floor in least.values())))
    lines = [[kind, f"{ms:.2f}", f"{floor:.2f}", f"{floor / ms:.0%}"] for kind, ms, floor in rows]
    return table(["kind", "ms", "floor, ms", "floor / measured"], lines)


def kernels() -> str:
    """Kernel by kernel: time, percent of a copy's speed, and how many times as long each peer takes."""
    peers = "torch eager", "torch.compile", "Liger-Kernel"
    lines = []
    for name in ("layernorm_h200", "elementwise_h200", "kernels_h200"):
        for row in read(name)["rows"]:
            kernel = f"LayerNorm, {row['kernel']} {row['N']} x {row['C']}" if "N" in row else row["kernel"]
            us, ours = row["us"], row["us"]["llmlab"]
            times = [f"{us[peer] / ours:.2f}" if peer in us else "" for peer in peers]
            lines.append([kernel, f"{ours:,.0f}", f"{row['percent']['llmlab']:.0f} %", *times])
    return table(["kernel", "µs", "of a copy's speed", *(f"{peer}, times" for peer in peers)], lines)


def head() -> str:
    """The head with its loss: milliseconds, and memory beside arguments and results."""
    lines = []
    for row in read("linear_cross_entropy_h200")["rows"]:
        rows = f"{row['logits_rows']:,}" if row["logits_rows"] else ""
        lines.append([row["system"], rows, f"{row['ms']:.1f}", f"{row['gib']:.2f}"])
    return table(["", "rows of logits at a time", "ms", "GiB"], lines)


def attention() -> str:
    """Milliseconds forward / backward by shape and implementation."""
    rows = read("attention_h200")["results"]
    names = dict.fromkeys(row["implementation"] for row in rows)
    shapes = dict.fromkeys((row["B"], row["T"], row["H"], row["D"]) for row in rows)
    found = {(r["B"], r["T"], r["H"], r["D"], r["implementation"]): r for r in rows}

    def cell(shape: tuple, name: str) -> str:
        row = found.get((*shape, name))
        return f"{row['forward']:.3f} / {row['backward']:.3f}" if row else ""

    head = ["B, T, H, D", *names]
    return table(head, ([", ".join(map(str, s)), *(cell(s, name) for name in names)] for s in shapes))


def filled(text: str) -> str:
    """The text with every table made anew."""
    return PLACE.sub(lambda place: place[1] + globals()[place[2]]() + place[3], text)


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
