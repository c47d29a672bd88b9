"""`llmlab memory`: what a training step will hold, to the byte, before anything is run."""

import math

from llmlab.checkpointing import policies, schedule, timeline
from llmlab.cli import Parser
from llmlab.errors import UserError
from llmlab.graph import Graph
from llmlab.models import gpt2
from llmlab.precision import Precision
from llmlab.train import settings
from llmlab.train.config import SPECS, Config
from llmlab.train.trainer import resolve_device, resolve_precision

FLAGS = ("L", "H", "C", "T", "B", "dropout", "precision", "logits_rows")
OPENAI = {"V": 50257, "T": 1024}


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="llmlab memory",
        description="The memory of a training step under each policy, from the graph alone: nothing runs.",
        allow_abbrev=False,
    )
    parser.add_argument("--model", choices=gpt2.SIZES, help="sizes of a published model: L, H, C, T and V")
    parser.add_argument("--V", type=int, metavar="N", help="vocabulary; default 256, or the model's")
    settings.add_arguments(parser, {"sizes": ("as in `llmlab train`", [SPECS[name] for name in FLAGS])})
    given = {name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None}
    sizes = {**gpt2.SIZES[given["model"]], **OPENAI} if "model" in given else {"V": 256}
    sizes |= {name: value for name, value in given.items() if name != "model"}
    V = sizes.pop("V")
    if V < 1:
        raise UserError(f"--V {V}: must be >= 1")
    config = Config().updated(sizes)
    training = config.training
    graph = gpt2.build(config.model.network(V), training.B, logits_rows=training.logits_rows or None)
    print(table(graph, resolve_precision(training.precision, resolve_device("auto"))))
    return 0


def table(graph: Graph, precision: str) -> str:
    """Parameters, gradients, moments and the peak of activations under each policy, as lines of text."""
    compute = Precision(precision).compute
    n = sum(math.prod(p.shape) for p in graph.parameters.values())
    rows = {"weights": 4 * n, "gradients": 4 * n, "AdamW moments": 8 * n}
    if precision != "fp32":
        rows[f"{precision} copy"] = compute.itemsize * n
    peaks = {
        name: timeline.peak(schedule.training(graph, policies.keep(name, graph)), graph, compute)
        for name in policies.POLICIES
    }
    columns = [
        [gib(value) for value in [*rows.values(), peak, sum(rows.values()) + peak]] for peak in peaks.values()
    ]
    names = [*rows, "activations, peak", "together"]
    lines = [
        f"{n:,} parameters, {graph.sizes['B']} x {graph.sizes['T']} tokens at once, {precision}; in GiB",
        "",
    ]
    lines.append(f"{'--recompute':<20}" + "".join(f"{name:>12}" for name in peaks))
    lines += [
        f"{name:<20}" + "".join(f"{value:>12}" for value in row) for name, row in zip(names, zip(*columns))
    ]
    return "\n".join(lines)


def gib(nbytes: int) -> str:
    """Bytes in GiB.

    >>> gib(3 * 2**29)
    '1.500'
    """
    return f"{nbytes / 2**30:.3f}"
