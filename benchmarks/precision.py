"""Does 16-bit training learn what float32 training learns? The same run in three precisions on a GPU.

    python benchmarks/precision.py [--steps 300]

Same weights, same batches, same schedule; only the dtype of activations and matrix products differs. Prints
the losses side by side, the widest gap of the smoothed curves, and tokens per second.
"""

from __future__ import annotations

import argparse
import time

import cupy
import numpy as np
from common import write_results

from llmlab.data import dataset
from llmlab.train.config import Config
from llmlab.train.trainer import Trainer

PRECISIONS = ("fp32", "bf16", "fp16")
SETTINGS = {"L": 6, "H": 6, "C": 384, "T": 256, "B": 64, "lr": 2e-3, "device": "cuda", "workers": 1}
WINDOW = 20
"""Steps that a smoothed loss averages: single steps differ by the noise of their batch alone."""


def losses(precision: str, steps: int) -> tuple[np.ndarray, float, float]:
    """Training losses, the final held-out loss, and tokens per second."""
    config = Config().updated({**SETTINGS, "steps": steps, "precision": precision})
    trainer = Trainer(config, dataset.load(["pydoc"]))
    readings, start = [], 0.0
    for step in range(steps):
        if step == 10:  # kernels are compiled by now
            cupy.cuda.Device().synchronize()
            start = time.perf_counter()
        readings.append(trainer.train_step(trainer.batches(step)))
    cupy.cuda.Device().synchronize()
    rate = (steps - 10) * config.training.B * config.model.T / (time.perf_counter() - start)
    return np.array([reading.values()["loss"] for reading in readings]), trainer.evaluate(), rate


def smooth(x: np.ndarray) -> np.ndarray:
    return np.convolve(x, np.ones(WINDOW) / WINDOW, "valid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    runs = {precision: losses(precision, steps) for precision in PRECISIONS}
    reference = smooth(runs["fp32"][0])
    rows = {}
    print(f"{'precision':>10} {'last loss':>10} {'held out':>9} {'widest gap':>11} {'tokens/s':>11}")
    for precision, (curve, held_out, rate) in runs.items():
        gap = float(np.abs(smooth(curve) - reference).max())
        rows[precision] = {"losses": curve.round(4).tolist(), "held_out": held_out, "widest_gap": gap,
                           "tokens_per_s": rate}
        print(f"{precision:>10} {smooth(curve)[-1]:10.4f} {held_out:9.4f} {gap:11.4f} {rate:11,.0f}")
    write_results("precision_h200", {"settings": SETTINGS, "smoothed_over": WINDOW, "runs": rows})


if __name__ == "__main__":
    main()
