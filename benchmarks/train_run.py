"""What a whole run of `llmlab train` reached on this machine: tokens a second, MFU, losses over time.

    llmlab train --model gpt2 --data 'src/**/*.py' --B 64 --steps 3700 --name long
    python benchmarks/train_run.py runs/long --peak 989 --note "what was read"

MFU, model FLOP utilisation, is the arithmetic that the model asks for by the peak of the device, as its
vendor states it (`--peak`, in TFLOP/s). A token asks for 6 operations a weight of the matrix products, and
for 12 L C T in attention (Chowdhery et al. 2022, appendix B). Evaluations and saves count as time.
"""

from __future__ import annotations

import argparse
import statistics
from itertools import pairwise

from common import write_results

from llmlab.data import dataset
from llmlab.train import metrics
from llmlab.train.config import Config, read
from llmlab.train.folder import existing

EVERY = 25
"""Of so many steps' figures one is kept."""


def flop_per_token(config: Config, V: int) -> int:
    """Operations of a forward and a backward pass for one token."""
    m = config.model
    return 6 * (12 * m.L * m.C**2 + V * m.C) + 12 * m.L * m.C * m.T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="the folder of a finished run")
    parser.add_argument("--peak", type=float, required=True, metavar="TFLOP/s", help="of the device, stated")
    parser.add_argument("--note", default="", help="what the text was")
    parser.add_argument("--name", default="train_run", help="name of the file of results")
    args = parser.parse_args()

    folder = existing(args.run)
    config, records = read(folder.config), metrics.read(folder.metrics)
    data = dataset.load(config.data.data, config.data.held_out)
    t = config.training
    tokens = t.B * t.accumulate * config.model.T
    steps = [r for r in records if "loss" in r]
    seconds = steps[-1]["seconds"] - steps[0]["seconds"]
    rate = (steps[-1]["step"] - steps[0]["step"]) * tokens / seconds
    alone = tokens / statistics.median(b["seconds"] - a["seconds"] for a, b in pairwise(steps))
    flop = flop_per_token(config, data.vocabulary)
    found = {
        "training": {name: value for name, value in config.values().items() if name not in ("data", "runs")},
        "text": args.note, "tokens_to_train_on": len(data.train), "tokens_seen": steps[-1]["step"] * tokens,
        "seconds": seconds, "tokens_per_s": round(rate), "tokens_per_s_of_the_median_step": round(alone),
        "flop_per_token": flop, "tflop_per_s": round(rate * flop / 1e12, 1),
        "peak_tflop_per_s": args.peak, "mfu": round(rate * flop / 1e12 / args.peak, 4),
        "baselines": data.baselines(),
        "held_out": [r for r in records if "held_out" in r],
        "losses": [r for r in steps if r["step"] % EVERY == 0 or r is steps[0]],
    }
    path = write_results(args.name, found)
    print(f"{rate:,.0f} tokens/s over {seconds:.0f} s ({alone:,.0f} in the median step), "
          f"{found['tflop_per_s']} TFLOP/s, {found['mfu']:.1%} of {args.peak:g}; {path}")


if __name__ == "__main__":
    main()
