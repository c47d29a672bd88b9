"""`llmlab memory`: what a training step will hold, before anything is run.

To the byte for the tensors that llmlab allocates: weights, gradients, moments and activations. What comes on
top is said below the table, and left to measurement.
"""

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
ON_TOP = """
Counted, to the byte: the tensors that llmlab allocates, as named. On top come the batch itself and scratch
of the ops; on a CPU one more gradient for each worker after the first; on a GPU what libraries hold (CUDA
context, code of the kernels, cuBLAS workspaces), about 0.5 GiB on an H200."""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="llmlab memory",
        description="The memory of a training step under each policy, from the graph alone: nothing runs.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--model",
        choices=gpt2.SIZES,
        help="sizes of a published model: L, H, C, T, and its V of 50257; for a run of `llmlab train`, which "
        "reads text byte by byte, add --V 256",
    )
    parser.add_argument(
        "--V", type=int, metavar="N", help="vocabulary; default 256, the bytes, or with --model 50257"
    )
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
    hint = "" if V == 256 else " (`llmlab train` on text reads bytes: for its memory add --V 256)"
    print(f"vocabulary V = {V:,}{hint}")
    print(table(graph, resolve_precision(training.precision, resolve_device("auto"))))
    print(ON_TOP)
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
    width = 2 + max(len(text) for column in columns for text in (*column, *peaks))
    lines.append(f"{'--recompute':<20}" + "".join(f"{name:>{width}}" for name in peaks))
    for name, *row in zip(names, *columns):
        lines.append(f"{name:<20}" + "".join(f"{value:>{width}}" for value in row))
    return "\n".join(lines)


def gib(nbytes: int) -> str:
    """Bytes in GiB.

    >>> gib(3 * 2**29)
    '1.500'
    """
    return f"{nbytes / 2**30:.3f}"
