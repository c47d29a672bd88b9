"""The same training step by llmlab and by PyTorch on this CPU: speed, peak memory, and whose matrix products.

    python benchmarks/train_cpu.py [--rounds 12] [--configuration small large] [--compile]

Each side runs in a process of its own, so that neither's thread pool disturbs the other and each has a peak
memory of its own. The sides take turns, a few steps each; while one computes the others wait on a pipe.
Ratios are medians over rounds of neighbouring turns, which a slow minute of the machine meets alike.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

CONFIGURATIONS = {
    "small": {"V": 256, "T": 128, "L": 4, "H": 4, "C": 128, "B": 16},
    "large": {"V": 256, "T": 256, "L": 6, "H": 6, "C": 384, "B": 8},
}
LEARNING_RATE = 1e-3
RESULTS = Path(__file__).parent / "results" / "train_cpu.json"


# The sides: each prepares a step, and says what multiplies its matrices.

def llmlab_side(B: int, threads: int, policy: str, **sizes: int):
    """A function that does one step, and the BLAS it uses."""
    from threadpoolctl import threadpool_info

    from llmlab.engine import Engine
    from llmlab.models import gpt2
    from llmlab.optim import AdamW
    from llmlab.parameters import Parameters

    config = gpt2.Config(**sizes)
    graph = gpt2.build(config, B, keep_slope=policy == "none")
    parameters = Parameters(graph.parameters)
    gpt2.initialise(parameters, config, seed=0)
    engine = Engine(graph, parameters, policy=policy, workers=threads)
    optimizer = AdamW(parameters)

    def step(tokens, targets) -> float:
        parameters.zero_grad()
        loss = engine.forward_backward(tokens, targets)
        optimizer.step(LEARNING_RATE)
        return float(loss)

    blas = next(i for i in threadpool_info() if i["user_api"] == "blas")
    return step, f"{blas['internal_api']} {blas['version']}, {blas.get('architecture')} kernels"


def torch_side(B: int, threads: int, compiled: bool, **sizes: int):
    """A function that does one step, and the BLAS it uses."""
    import torch
    from torch_gpt2 import GPT2, make_step

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    run = make_step(GPT2(**sizes), lr=LEARNING_RATE, compiled=compiled)

    def step(tokens, targets) -> float:
        return float(run(torch.from_numpy(tokens), torch.from_numpy(targets)))

    lines = torch.__config__.show().splitlines()
    mkl = next((line.strip(" -") for line in lines if "Math Kernel" in line), "no MKL")
    mkl = mkl.partition("-Product")[0]
    return step, f"{mkl}; {torch.backends.cpu.get_cpu_capability()} kernels of torch"


def serve(side: str, configuration: str, threads: int) -> None:
    """A side's process: a line with a number of steps comes in, a line with their seconds goes out."""
    import numpy as np

    sizes = CONFIGURATIONS[configuration]
    if side.startswith("llmlab"):
        step, blas = llmlab_side(threads=threads, policy=side.partition("-")[2], **sizes)
    else:
        step, blas = torch_side(threads=threads, compiled=side == "torch-compile", **sizes)
    generator = np.random.default_rng(0)
    batches = [generator.integers(0, sizes["V"], (2, sizes["B"], sizes["T"])) for _ in range(8)]
    print(json.dumps({"blas": blas, "loss": [step(*batches[i % 8]) for i in range(4)]}), flush=True)
    for line in sys.stdin:
        seconds = []
        for i in range(int(line)):
            start = time.perf_counter()
            step(*batches[i % 8])
            seconds.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": seconds, "peak_bytes": peak}), flush=True)


class Side:
    """A side's process, seen from the referee."""

    def __init__(self, side: str, configuration: str, threads: int) -> None:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        variables = {name: str(threads) for name in names}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", side, configuration, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables})
        self.seconds: list[float] = []
        hello = self._answer()
        self.blas, self.losses = hello["blas"], hello["loss"]
        self.peak_bytes = 0

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a side has ended early; its message stands above")
        return json.loads(line)

    def turn(self, steps: int) -> None:
        """Run some steps; keep the median of their seconds."""
        print(steps, file=self.process.stdin, flush=True)
        answer = self._answer()
        self.seconds.append(statistics.median(answer["seconds"]))
        self.peak_bytes = answer["peak_bytes"]

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def measure(configuration: str, sides: list[str], threads: int, rounds: int, steps: int) -> dict:
    """Let the sides take turns; returns what each reached, and its ratios to torch eager."""
    running = {side: Side(side, configuration, threads) for side in sides}
    for _ in range(rounds):
        for side in running.values():
            side.turn(steps)
    for side in running.values():
        side.end()
    sizes = CONFIGURATIONS[configuration]
    reference = running["torch"]
    result = {}
    for name, side in running.items():
        ratio = statistics.median(theirs / ours for theirs, ours in zip(reference.seconds, side.seconds))
        result[name] = {
            "tokens_per_second": round(sizes["B"] * sizes["T"] / statistics.median(side.seconds)),
            "speed_ratio": round(ratio, 3),
            "peak_bytes": side.peak_bytes,
            "memory_ratio": round(side.peak_bytes / reference.peak_bytes, 3),
            "matrix_products": side.blas,
        }
    return result


def processor() -> str:
    """The CPU's name, as well as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--configuration", nargs="+", choices=CONFIGURATIONS, default=list(CONFIGURATIONS))
    parser.add_argument("--rounds", type=int, default=12, help="turns of each side")
    parser.add_argument("--steps", type=int, default=3, help="steps in a turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--policies", nargs="+", default=["none", "selective"], help="of llmlab")
    parser.add_argument("--compile", action="store_true", help="also torch.compile (needs a C++ compiler)")
    options = parser.parse_args()
    sides = ["torch", *(f"llmlab-{policy}" for policy in options.policies)]
    if options.compile and shutil.which("g++"):
        sides.append("torch-compile")
    report = {
        "date": datetime.date.today().isoformat(),
        "processor": processor(),
        "threads": options.threads,
        "command": f"python benchmarks/train_cpu.py {' '.join(sys.argv[1:])}".strip(),
        "configurations": {},
    }
    for configuration in options.configuration:
        result = measure(configuration, sides, options.threads, options.rounds, options.steps)
        report["configurations"][configuration] = {"sizes": CONFIGURATIONS[configuration], "sides": result}
        print(f"\n{configuration}: {CONFIGURATIONS[configuration]}, {options.threads} threads")
        print(f"{'':16}{'tokens/s':>10}{'ratio':>8}{'peak MB':>9}{'ratio':>8}  matrix products")
        for name, row in result.items():
            print(f"{name:16}{row['tokens_per_second']:10,}{row['speed_ratio']:8.2f}"
                  f"{row['peak_bytes'] / 1e6:9.0f}{row['memory_ratio']:8.2f}  {row['matrix_products']}")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
