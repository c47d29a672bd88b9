"""Everything that defines a run, as frozen dataclasses: from defaults, a TOML file, and the command line."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import tomli_w

from llmlab.errors import UserError
from llmlab.kernels import attention
from llmlab.models import gpt2
from llmlab.train import settings
from llmlab.train.settings import setting

TILE = 128
"""Rows: with a head of 50,257, rows of logits would start off 16-byte boundaries, where no wide load may."""


@dataclass(frozen=True)
class Data:
    """What to learn from."""

    data: tuple[str, ...] = setting(
        ("pydoc",),
        "a corpus: pydoc, tinyshakespeare, text files, folders, patterns, or a folder of token shards",
    )
    held_out: float = setting(
        0.1, "fraction of the text, at its end, never trained on", limits={">": 0, "<": 1}
    )


@dataclass(frozen=True)
class Model:
    """The GPT-2 that is trained."""

    L: int = setting(4, "layers (transformer blocks)", limits={">=": 1, "<=": 1000})
    H: int = setting(4, "attention heads, a divisor of C", limits={">=": 1})
    C: int = setting(128, "channels: the width of the residual stream", limits={">=": 1})
    T: int = setting(128, "sequence length, in tokens", limits={">=": 1})
    init_std: float = setting(
        0.0,
        "standard deviation of the initial weights; 0: 1/sqrt(C), GPT-2 has 0.02",
        limits={">=": 0, "<=": 10},
    )
    dropout: float = setting(0.0, "probability that an element is dropped", limits={">=": 0, "<": 1})

    def network(self, V: int) -> gpt2.Config:
        """This model for a vocabulary of V, padded to whole tiles of a GPU's matrix products.

        >>> Model().network(V=50257).rows
        50304
        """
        sizes = {name: getattr(self, name) for name in ("L", "H", "C", "T", "dropout")}
        return gpt2.Config(V=V, vocabulary_multiple=TILE, **sizes)


@dataclass(frozen=True)
class Optimizer:
    """AdamW with warm-up, cosine decay, and clipping by the global norm."""

    lr: float = setting(5e-3, "peak learning rate, per step", limits={">": 0, "<=": 1000})
    lr_end: float = setting(
        0.0, "learning rate at the end, as a fraction of the peak", limits={">=": 0, "<=": 1}
    )
    warmup: int = setting(
        100, "steps until the learning rate is at its peak; at most a tenth of all", limits={">=": 0}
    )
    weight_decay: float = setting(
        0.1, "decay of matrices and embeddings, times the learning rate", limits={">=": 0}
    )
    beta1: float = setting(0.9, "how much of the mean gradient each step keeps", limits={">=": 0, "<": 1})
    beta2: float = setting(
        0.95, "how much of the mean squared gradient each step keeps", limits={">=": 0, "<": 1}
    )
    eps: float = setting(1e-8, "added to the root of the mean squared gradient", limits={">": 0})
    clip: float = setting(
        1.0, "largest global norm of a step's gradient; 0: no clipping", limits={">=": 0}
    )


@dataclass(frozen=True)
class Training:
    """How long, how much at once, and on what."""

    steps: int = setting(900, "optimizer steps", limits={">=": 1}, fixed=False)
    B: int = setting(16, "batch: sequences computed at once", limits={">=": 1})
    accumulate: int = setting(1, "batches whose gradients make one step", limits={">=": 1})
    seed: int = setting(
        1, "of the initial weights, the order of the data, dropout and samples", limits={">=": 0, "<": 2**64}
    )
    device: str = setting("auto", "where to train", choices=("auto", "cpu", "cuda"), fixed=False)
    precision: str = setting(
        "auto",
        "of activations and matrix products; the trained weights are fp32 always; auto: bf16 on a GPU that "
        "has it, else fp32",
        choices=("auto", "fp32", "bf16", "fp16"),
    )
    attention: str = setting(
        "auto",
        "what computes attention on a GPU: llmlab's own kernels, or cuDNN where it is installed",
        choices=attention.IMPLEMENTATIONS,
        fixed=False,
    )
    recompute: str = setting(
        "none",
        "activations that backward computes again instead of keeping them in memory",
        choices=("none", "selective", "full"),
        fixed=False,
    )
    logits_rows: int = setting(
        0,
        "tokens whose logits exist at once, V numbers each; 0: all of a batch; 16384 save memory on a large "
        "GPU at no measurable cost, 2048 take a fifth longer for the head and its loss",
        limits={">=": 0},
    )
    workers: int = setting(
        0, "CPU threads that share a batch; 0: as many as there are cores, at most 4", limits={">=": 0}
    )


@dataclass(frozen=True)
class Report:
    """What to show and to write, and when."""

    runs: str = setting("runs", "folder that holds the runs", fixed=False)
    name: str = setting("", "the run's folder in it; default: the corpus and a number", fixed=False)
    eval_every: int = setting(
        125, "steps between evaluations on held-out text", limits={">=": 1}, fixed=False
    )
    eval_tokens: int = setting(
        65536, "held-out tokens an evaluation reads, at most", limits={">=": 1}, fixed=False
    )
    save_every: int = setting(250, "steps between saved states", limits={">=": 1}, fixed=False)
    keep: int = setting(2, "saved states to keep", limits={">=": 1}, fixed=False)
    sample: int = setting(400, "tokens to sample at the end", limits={">=": 0}, fixed=False)
    prompt: str = setting("The ", "text that the sample continues", fixed=False)
    temperature: float = setting(
        0.8,
        "divides the logits before sampling; 0: always the likeliest token",
        limits={">=": 0},
        fixed=False,
    )
    top_k: int = setting(
        40, "sample among this many likeliest tokens; 0: among all", limits={">=": 0}, fixed=False
    )


@dataclass(frozen=True)
class Config:
    """One run, whole: checked when it is made, and never changed after.

    Raises `UserError` for a value of the wrong type, out of its limits, or impossible beside another.

    >>> Config().updated({"C": 64, "lr": 1e-3}).model.C
    64
    """

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    optimizer: Optimizer = field(default_factory=Optimizer)
    training: Training = field(default_factory=Training)
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        for name, value in self.values().items():
            settings.check(SPECS[name], value)
        name = self.report.name
        if name in (".", "..") or set(name) & set("/\\\0"):
            raise UserError(
                f"name = {name!r}: needs to be the plain name of a folder; --runs says where it lies"
            )
        C, H = self.model.C, self.model.H
        if C % H:
            raise UserError(
                f"C = {C} is not divisible by H = {H}: heads share the channels; try C = {H * -(-C // H)}"
            )
        if self.training.workers > self.training.B:
            raise UserError(
                f"workers = {self.training.workers}: must be <= B = {self.training.B}: they share the batch"
            )

    def values(self) -> dict[str, Any]:
        """Every setting by its name, whatever its section: names are unique."""
        return {name: value for section in asdict(self).values() for name, value in section.items()}

    def updated(self, values: Mapping[str, Any]) -> "Config":
        """A copy in which the named settings have other values."""
        changed = {
            section: replace(getattr(self, section), **{k: v for k, v in values.items() if k in specs})
            for section, specs in SECTIONS.items()
        }
        return replace(self, **changed)

    def to_toml(self) -> str:
        """This configuration as the TOML text that `read` understands."""
        return tomli_w.dumps(
            {
                section: {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
                for section, values in asdict(self).items()
            }
        )


SECTIONS = {f.name: {spec.name: spec for spec in fields(f.type)} for f in fields(Config)}
TITLES = {f.name: f.type.__doc__ for f in fields(Config)}
SPECS = {name: spec for specs in SECTIONS.values() for name, spec in specs.items()}


LEARNING_RATES = {"gpt2": 6e-4, "gpt2-medium": 3e-4, "gpt2-large": 2.5e-4, "gpt2-xl": 2e-4}
PRESETS = {
    name: {**gpt2.SIZES[name], "T": 1024, "init_std": 0.02, "lr": lr} for name, lr in LEARNING_RATES.items()
}
"""The published sizes of GPT-2, with learning rates for such sizes (Brown et al. 2020, table 2.1)."""


def read(path: str | Path) -> Config:
    """The configuration in a TOML file; what it leaves out has its default."""
    return Config().updated(settings.read_toml(path, SECTIONS))
