"""What a run measured: a file with one JSON object a line, and the picture of the loss."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Metrics:
    """An append-only `metrics.jsonl` that can be taken back to where a saved state left it.

    A line holds one step's figures ("loss" in nats per token, "norm" of the gradient, "lr") or an
    evaluation's ("held_out"); "seconds" is the time since the run began.
    """

    def __init__(self, path: str | Path, keep_bytes: int = 0):
        self.file = open(path, "ab")  # noqa: SIM115  open for as long as the run
        self.file.truncate(min(keep_bytes, self.file.tell()))

    def write(self, **values: float) -> None:
        """Append one line."""
        self.file.write((json.dumps(values) + "\n").encode())

    def sync(self) -> int:
        """Bring all lines to the disk; return the size of the file in bytes."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.file.tell()

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


def read(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a metrics file; a last line cut short by a crash is left out."""
    lines = Path(path).read_text().split("\n")
    return [json.loads(line) for line in lines[:-1]]


def draw_loss(
    path: str | Path, records: list[dict[str, Any]], baselines: Mapping[str, float], title: str
) -> None:
    """Draw training and held-out loss over steps, with the n-gram losses as lines, into a PNG.

    A figure of its own, not pyplot's: drawing while a notebook or a thread is busy disturbs nobody.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), dpi=144, layout="constrained")
    axes = figure.subplots()
    train = [(r["step"], r["loss"]) for r in records if "loss" in r]
    held_out = [(r["step"], r["held_out"]) for r in records if "held_out" in r]
    if train:
        steps, losses = zip(*train)
        axes.plot(steps, losses, color="#9ecae1", linewidth=0.7)
        axes.plot(steps, smoothed(losses), color="#2171b5", linewidth=1.6, label="training (smoothed)")
    if held_out:
        axes.plot(
            *zip(*held_out),
            color="#d94801",
            linewidth=1.8,
            marker="o",
            markersize=3.5,
            label=f"held out: {held_out[-1][1]:.3f} at the end",
        )
    lowest = min(baselines.values(), default=0)
    for (
        name,
        loss,
    ) in baselines.items():  # labelled in the margin; the lowest below its line, clear of the next
        axes.axhline(loss, color="#777777", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        axes.annotate(
            f"{name} {loss:.2f}",
            (1, loss),
            xycoords=("axes fraction", "data"),
            xytext=(6, -1),
            textcoords="offset points",
            va="top" if loss == lowest else "bottom" if loss < lowest + 0.2 else "center",
            fontsize=8.5,
            color="#555555",
        )
    last = train[-1][0] if train else 1
    axes.set(xlabel="step", ylabel="loss (nats per token)", xlim=(0, last))
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    if train or held_out:
        axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.8))
    figure.savefig(path)


def smoothed(values: tuple[float, ...], keep: float = 0.9) -> list[float]:
    """An exponential moving average, corrected for its start.

    >>> smoothed((2.0, 2.0))
    [2.0, 2.0]
    """
    result, mean, weight = [], 0.0, 0.0
    for value in values:
        mean, weight = keep * mean + (1 - keep) * value, keep * weight + (1 - keep)
        result.append(round(mean / weight, 6))
    return result
