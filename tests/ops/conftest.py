"""One table of every op: arguments to try it with, and the same function in PyTorch."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import pytest

from llmlab import ops


@dataclass(frozen=True)
class Case:
    """An op, how to make its forward's arguments from shapes, and PyTorch's name for what it computes."""

    op: ModuleType
    arguments: Callable[..., dict]  # (generator, B, T, C) -> arguments of forward by name, float64
    torch: Callable[..., dict]  # the arguments as tensors -> differentiable outputs by name

    @property
    def name(self) -> str:
        return self.op.__name__.rpartition(".")[2]


def _normal(generator, *shape):
    return generator.standard_normal(shape)


def _layernorm(g, B, T, C):
    return {"x": _normal(g, B, T, C), "weight": _normal(g, C), "bias": _normal(g, C)}


def _residual_layernorm(g, B, T, C):
    return {**_layernorm(g, B, T, C), "branch": _normal(g, B, T, C), "branch_bias": _normal(g, C)}


def _linear(g, B, T, C):
    return {"x": _normal(g, B, T, C), "weight": _normal(g, C + 3, C), "bias": _normal(g, C + 3)}


def _gelu(g, B, T, C):
    return {"x": 2 * _normal(g, B, T, C), "bias": _normal(g, C)}


def _embedding(g, B, T, C):
    return {"tokens": g.integers(0, 7, (B, T)), "wte": _normal(g, 7, C), "wpe": _normal(g, T + 2, C)}


def _cross_entropy(g, B, T, C):
    targets = g.integers(0, C, (B, T))
    targets[g.random((B, T)) < 0.2] = -100
    return {"logits": 3 * _normal(g, B, T, C), "targets": targets}


def _linear_cross_entropy(g, B, T, C):
    return {"x": _normal(g, B, T, C), "weight": _normal(g, C + 3, C),
            "targets": _cross_entropy(g, B, T, C + 3)["targets"]}


def _dropout(g, B, T, C):
    return {"x": _normal(g, B, T, C), "p": 0.25, "seed": 2**40 + 7, "step": 3, "layer": 5}


def _torch_attention(qkv, heads):
    import torch

    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (x.reshape(B, T, heads, C // heads).transpose(1, 2) for x in qkv.split(C, dim=-1))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return {"y": y.transpose(1, 2).reshape(B, T, C)}


def _torch_residual_layernorm(x, branch, weight, bias, branch_bias):
    import torch

    r = x + (branch + branch_bias)
    return {"r": r, "y": torch.nn.functional.layer_norm(r, weight.shape, weight, bias)}


def _torch_dropout(x, p, seed, step, layer):
    import torch

    keep = ops.dropout.keep(x.numel(), p, seed, step, layer).reshape(x.shape)
    return {"y": x * torch.from_numpy(keep) / (1 - p)}


def _functional(call):
    def torch_function(**tensors):
        import torch

        return call(torch.nn.functional, **tensors)

    return torch_function


CASES = [
    Case(ops.layernorm, _layernorm, _functional(
        lambda F, x, weight, bias: {"y": F.layer_norm(x, weight.shape, weight, bias)})),
    Case(ops.residual_layernorm, _residual_layernorm, _torch_residual_layernorm),
    Case(ops.linear, _linear, _functional(lambda F, x, weight, bias: {"y": F.linear(x, weight, bias)})),
    Case(ops.gelu, _gelu, _functional(lambda F, x, bias: {"y": F.gelu(x + bias, approximate="tanh")})),
    Case(ops.softmax, lambda g, B, T, C: {"x": _normal(g, B, T, C)}, _functional(
        lambda F, x: {"y": F.softmax(x, -1)})),
    Case(ops.attention, lambda g, B, T, C: {"qkv": _normal(g, B, T, 6 * C), "heads": 2}, _torch_attention),
    Case(ops.embedding, _embedding, _functional(
        lambda F, tokens, wte, wpe: {"x": F.embedding(tokens, wte) + wpe[:tokens.shape[1]]})),
    Case(ops.cross_entropy, _cross_entropy, _functional(
        lambda F, logits, targets: {"loss": F.cross_entropy(logits.flatten(0, -2), targets.flatten())})),
    Case(ops.linear_cross_entropy, _linear_cross_entropy, _functional(
        lambda F, x, weight, targets: {
            "loss": F.cross_entropy(F.linear(x, weight).flatten(0, -2), targets.flatten())})),
    Case(ops.residual, lambda g, B, T, C: {"x": _normal(g, B, T, C), "branch": _normal(g, B, T, C)},
         lambda x, branch: {"y": x + branch}),
    Case(ops.dropout, _dropout, _torch_dropout),
]


@pytest.fixture(scope="session", params=CASES, ids=lambda case: case.name)
def case(request) -> Case:
    return request.param
