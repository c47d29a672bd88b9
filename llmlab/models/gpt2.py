"""GPT-2 (Radford et al. 2019): its sizes, its graph and its initial weights.

Parameter names and the layout of the weights follow nanoGPT and Hugging Face; matrices are stored (C_out,
C_in).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from llmlab.graph import Graph, statistic
from llmlab.ops import (
    attention,
    cross_entropy,
    dropout,
    embedding,
    gelu,
    gelu_slope,
    layernorm,
    linear,
    linear_cross_entropy,
    residual_layernorm,
)
from llmlab.ops.check import between, integer, scalar
from llmlab.parameters import Parameters

__all__ = ["SIZES", "Config", "build", "initialise"]


@dataclass(frozen=True)
class Config:
    """The sizes of a GPT-2. Raises TypeError and ValueError for impossible ones.

    >>> Config(V=50257, T=1024, L=12, H=12, C=768).D
    64
    """

    V: int = 256
    """Vocabulary: number of different tokens."""
    T: int = 128
    """Longest sequence, in tokens."""
    L: int = 4
    """Layers."""
    H: int = 4
    """Attention heads in a layer."""
    C: int = 128
    """Channels of the residual stream; divisible by H."""
    dropout: float = 0.0
    """Probability with which an element of the embedding or of a branch is dropped in training."""
    vocabulary_multiple: int = 1
    """Rows of the embedding are rounded up to a multiple of this (128 suits tensor cores)."""

    def __post_init__(self) -> None:
        for name in ("V", "T", "L", "H", "C", "vocabulary_multiple"):
            integer(name, getattr(self, name), 1)
        if self.C % self.H:
            raise ValueError(f"C is {self.C}, needs to be divisible by H = {self.H}; "
                             f"try C = {self._nearest_C()}")
        between("dropout", self.dropout, 0, 1, closed=True)

    def _nearest_C(self) -> int:
        return max(1, round(self.C / self.H)) * self.H

    @property
    def D(self) -> int:
        """Channels of one head."""
        return self.C // self.H

    @property
    def rows(self) -> int:
        """Rows of the token embedding: V, and the padding."""
        return -(-self.V // self.vocabulary_multiple) * self.vocabulary_multiple


SIZES = {
    "gpt2": {"L": 12, "H": 12, "C": 768},
    "gpt2-medium": {"L": 24, "H": 16, "C": 1024},
    "gpt2-large": {"L": 36, "H": 20, "C": 1280},
    "gpt2-xl": {"L": 48, "H": 25, "C": 1600},
}
"""The four published models; all have V=50257 and T=1024."""


def build(
    config: Config, B: int, seed: int = 0, keep_slope: bool = False, logits_rows: int | None = None,
) -> Graph:
    """The training graph for batches of up to B sequences of up to T tokens; `seed` is that of dropout.

    Each sum of the residual stream is fused with the LayerNorm that reads it, and each bias with the op
    that reads the product it belongs to. The norm that reads the sum of a block ends that block, so that
    one tensor, the stream r, is all that crosses from a block into the next.

    `keep_slope` lets GELU keep its slope instead of its argument. The results are the same: on a CPU and
    without checkpointing it is faster, anywhere else slower.

    With `logits_rows` the loss is taken from the head's argument, so many rows (tokens) at a time: no more
    logits than these exist, where V is large by far the largest tensor of a step. Each chunk costs a pass
    over the gradient of the embedding. Loss and gradients are the same but for rounding; the head stays for
    predictions.

    Raises TypeError and ValueError for a B or logits_rows below 1, and a seed outside [0, 2**64).

    >>> graph = build(Config(V=11, T=8, L=2, H=2, C=8), B=3)
    >>> len(graph.nodes), graph.shape("h.1.mlp.act.y"), graph.nodes[-1].name
    (20, (3, 8, 32), 'loss')
    """
    integer("B", B, 1)
    if logits_rows is not None:
        integer("logits_rows", logits_rows, 1)
    integer("seed", seed, 0, 2**64 - 1)
    graph = Graph({"B": B, "T": config.T})
    builder = _Builder(graph, config, seed, keep_slope)
    graph.input("tokens", ("B", "T"))
    graph.input("targets", ("B", "T"))
    if config.dropout:
        graph.input("step", (), role="counter")
    stream = (builder.embedding(),)
    for layer in range(config.L):
        stream = builder.block(layer, *stream)
    _, y = builder.norm("ln_f", *stream)
    graph.block = None
    head = {"x": y, "weight": "wte.weight"}
    graph.logits = graph.add("head", linear, head, y=("B", "T", config.rows))
    padded = {"vocabulary": config.V} if config.rows != config.V else {}
    if logits_rows is None:
        graph.add("loss", cross_entropy, {"logits": graph.logits, "targets": "targets"}, padded,
                  loss=statistic(), lse=statistic("B", "T"))
    else:
        graph.add("loss", linear_cross_entropy, {**head, "targets": "targets"}, padded,
                  loss=statistic(), logits=(min(logits_rows, B * config.T), config.rows))
    return graph


class _Builder:
    """Adds the parts of a GPT-2 to a graph."""

    def __init__(self, graph: Graph, config: Config, seed: int, keep_slope: bool) -> None:
        self.graph, self.config, self.seed, self.keep_slope = graph, config, seed, keep_slope
        self.dropouts = 0

    def embedding(self) -> str:
        config, graph = self.config, self.graph
        wte = graph.parameter("wte.weight", (config.rows, config.C), decayed=True)
        wpe = graph.parameter("wpe.weight", (config.T, config.C), decayed=True)
        arguments = {"tokens": "tokens", "wte": wte, "wpe": wpe}
        x = graph.add("embedding", embedding, arguments, x=("B", "T", config.C))
        return self.dropout("embedding.dropout", x)

    def block(self, layer: int, x: str, branch: str | None = None, bias: str | None = None) -> tuple:
        """Attention and MLP of a layer; takes and returns the terms of a sum that the next norm makes."""
        graph, C, h = self.graph, self.config.C, f"h.{layer}"
        graph.block = max(layer - 1, 0)
        r, y = self.norm(f"{h}.ln_1", x, branch, bias)
        graph.block = layer
        qkv = self.linear(f"{h}.attn.c_attn", y, C, 3 * C)
        attended, _ = graph.add(f"{h}.attn", attention, {"qkv": qkv}, {"heads": self.config.H},
                                y=("B", "T", C), lse=statistic("B", self.config.H, "T"))
        r, y = self.norm(f"{h}.ln_2", r, *self.branch(f"{h}.attn.c_proj", attended, C))
        u, bias = self.product(f"{h}.mlp.c_fc", y, C, 4 * C)
        g = self.gelu(f"{h}.mlp.act", u, bias)
        return r, *self.branch(f"{h}.mlp.c_proj", g, 4 * C)

    def gelu(self, name: str, x: str, bias: str) -> str:
        shape = ("B", "T", 4 * self.config.C)
        if not self.keep_slope:
            return self.graph.add(name, gelu, {"x": x, "bias": bias}, y=shape)
        y, _ = self.graph.add(name, gelu_slope, {"x": x, "bias": bias}, y=shape, slope=shape)
        return y

    def branch(self, name: str, x: str, C_in: int) -> tuple[str, str | None]:
        """The product that ends a branch, and its bias; dropout needs the bias added first."""
        if self.config.dropout:
            return self.dropout(f"{name}.dropout", self.linear(name, x, C_in, self.config.C)), None
        return self.product(name, x, C_in, self.config.C)

    def product(self, name: str, x: str, C_in: int, C_out: int) -> tuple[str, str]:
        """A linear layer without its bias, and the bias, which the next op adds."""
        weight = self.graph.parameter(f"{name}.weight", (C_out, C_in), decayed=True)
        bias = self.graph.parameter(f"{name}.bias", (C_out,), decayed=False)
        return self.graph.add(name, linear, {"x": x, "weight": weight}, y=("B", "T", C_out)), bias

    def linear(self, name: str, x: str, C_in: int, C_out: int) -> str:
        weight = self.graph.parameter(f"{name}.weight", (C_out, C_in), decayed=True)
        bias = self.graph.parameter(f"{name}.bias", (C_out,), decayed=False)
        return self.graph.add(name, linear, {"x": x, "weight": weight, "bias": bias}, y=("B", "T", C_out))

    def norm(
        self, name: str, x: str, branch: str | None = None, branch_bias: str | None = None,
    ) -> tuple[str, str]:
        """r = x + (branch + branch_bias), or just x, and LayerNorm(r)."""
        C = self.config.C
        arguments = {
            "x": x,
            "weight": self.graph.parameter(f"{name}.weight", (C,), decayed=False),
            "bias": self.graph.parameter(f"{name}.bias", (C,), decayed=False),
        }
        shapes = {"y": ("B", "T", C), "mean": statistic("B", "T"), "rstd": statistic("B", "T")}
        if branch is None:
            y, _, _ = self.graph.add(name, layernorm, arguments, **shapes)
            return x, y
        arguments["branch"] = branch
        if branch_bias is not None:
            arguments["branch_bias"] = branch_bias
        r, y, _, _ = self.graph.add(name, residual_layernorm, arguments, r=("B", "T", C), **shapes)
        return r, y

    def dropout(self, name: str, x: str) -> str:
        """Dropout, if there is any. `layer` numbers the places, so that no two share a mask."""
        if not self.config.dropout:
            return x
        attributes = {"p": self.config.dropout, "seed": self.seed, "layer": self.dropouts}
        self.dropouts += 1
        shape = ("B", "T", self.config.C)
        return self.graph.add(name, dropout, {"x": x, "step": "step"}, attributes, y=shape)


def initialise(parameters: Parameters, config: Config, seed: int, std: float = 0.02) -> None:
    """Draw GPT-2's initial weights: normal with standard deviation `std`, biases 0, norms 1.

    The two products that end a branch get std/√(2L), so that the residual stream's variance doesn't grow
    with depth. GPT-2's 0.02 suits wide models; a narrow one learns faster from about 1/√C. The same seed
    gives the same weights on any device and in any precision.

    Raises TypeError and ValueError for a seed outside [0, 2**64), a std that is negative or not finite, and
    parameters of another config.
    """
    integer("seed", seed, 0, 2**64 - 1)
    scalar("std", std, 0)
    shape = parameters.specs["wte.weight"].shape
    if shape != (config.rows, config.C):
        raise ValueError(f"parameters has a 'wte.weight' of shape {shape}, needs "
                         f"({config.rows}, {config.C}) by this config; they were made for another one")
    generator = np.random.Generator(np.random.Philox(seed))
    for name, spec in parameters.specs.items():
        if name.endswith("bias"):
            values = np.zeros(spec.shape, np.float32)
        elif len(spec.shape) == 1:
            values = np.ones(spec.shape, np.float32)
        else:
            scale = std / math.sqrt(2 * config.L) if name.endswith("c_proj.weight") else std
            values = generator.standard_normal(spec.shape, np.float32) * np.float32(scale)
        if name == "wte.weight":
            values[config.V:] = 0
        parameters.write(name, values)
    parameters.refresh()
