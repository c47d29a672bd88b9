"""Each kernel's error against the op in float64: at most twice that of torch's own op in the same dtype."""

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab import kernels, ops
from llmlab.arrays import to_numpy
from llmlab.kernels import attention
from llmlab.optim import adamw

torch = pytest.importorskip("torch")
F = torch.nn.functional

# What is allowed beside twice torch's error, relative to the exact result. To the norm of all errors, where
# luck averages out: two roundings in float32, which is what both compute in. To the largest, which hangs on
# one element and on which way torch happened to round there: one rounding in 16 bits, four units in the last
# place in float32, where all that comes before the result is rounded as coarsely as the result.
IN_NORM = 2.0**-23
LARGEST = {"float32": 2.0**-21, "bfloat16": 2.0**-8, "float16": 2.0**-11}

EXAMPLES = {"emulated": 3, "cuda": 8}


@dataclass(frozen=True)
class Case:
    """An op, arguments for it from N rows and a width C, and torch's own op.

    Emulated, each width is a compilation of seconds: there a few are drawn, on a GPU any. Below some 16, what
    LayerNorm and softmax subtract leaves little but errors: gradients all but 0, and ratios by chance.
    """

    op: ModuleType
    arguments: Callable[..., dict]  # (generator, N, C) -> arguments of forward by name
    torch: Callable[..., dict]  # the arguments as tensors -> results by name
    emulated: tuple[int, ...] = (24, 77)  # widths: whole packs, and not
    cuda: Any = field(default_factory=lambda: st.integers(16, 1600))
    beside: dict[str, float] = field(default_factory=dict)  # dtype -> allowed to backward beside the budget

    @property
    def name(self) -> str:
        return self.op.__name__.rpartition(".")[2]


def normal(generator, *shape):
    return generator.standard_normal(shape)


def arguments_of_norm(g, N, C):
    return {"x": normal(g, N, C), "weight": normal(g, C), "bias": normal(g, C)}


def arguments_of_embedding(g, N, C):
    tokens = g.integers(0, 9, (2, N))  # each many times, so that gradients are sums
    return {"tokens": tokens, "wte": normal(g, 9, C), "wpe": normal(g, N + 1, C)}


def logits_and_targets(g, N, C):
    targets = g.integers(0, C, N)
    targets[1::5] = -100
    # a loss for each row: of one number, no error can be typical
    return {"logits": 3 * normal(g, N, C), "targets": targets, "reduction": "none"}


def arguments_of_head(g, N, C):
    _, *of_loss = logits_and_targets(g, N, 3 * C).items()
    return {"x": normal(g, N, C), "weight": normal(g, 3 * C, C), **dict(of_loss)}


def torch_attention(qkv, heads):
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (x.unflatten(-1, (heads, C // heads)).transpose(1, 2) for x in qkv.chunk(3, -1))
    return {"y": F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)}


def torch_residual_layernorm(x, branch, weight, bias, branch_bias):
    r = x + (branch + branch_bias)
    return {"r": r, "y": F.layer_norm(r, weight.shape, weight, bias)}


def torch_cross_entropy(logits, targets, reduction):
    return F.cross_entropy(logits, targets, reduction=reduction)


def torch_dropout(x, p, seed, step, layer):
    keep = torch.from_numpy(ops.dropout.keep(x.numel(), p, seed, step, layer)).to(x.device)
    return {"y": x * keep.reshape(x.shape) / (1 - p)}  # torch's own mask is another one


CASES = [
    Case(
        ops.linear,
        lambda g, N, C: {"x": normal(g, N, C), "weight": normal(g, 24, C), "bias": normal(g, 24)},
        lambda x, weight, bias: {"y": F.linear(x, weight, bias)},
    ),
    Case(
        ops.gelu,
        lambda g, N, C: {"x": 2 * normal(g, N, C), "bias": normal(g, C)},
        lambda x, bias: {"y": F.gelu(x + bias, approximate="tanh")},
    ),
    Case(
        ops.layernorm,
        arguments_of_norm,
        lambda x, weight, bias: {"y": F.layer_norm(x, weight.shape, weight, bias)},
    ),
    Case(
        ops.residual_layernorm,
        lambda g, N, C: {
            **arguments_of_norm(g, N, C),
            "branch": normal(g, N, C),
            "branch_bias": normal(g, C),
        },
        torch_residual_layernorm,
    ),
    Case(ops.softmax, lambda g, N, C: {"x": 3 * normal(g, N, C)}, lambda x: {"y": F.softmax(x, -1)}),
    Case(
        ops.cross_entropy,
        logits_and_targets,
        lambda logits, **of_loss: {"loss": torch_cross_entropy(logits, **of_loss)},
        # Of a row, backward gets its lse alone, near 10 here and so rounded by up to 2^-21, which is the
        # relative error of every p = exp(z - lse). Torch keeps the logarithms of all p. Forward and backward
        # in one pass have the denominator itself, and need nothing beside.
        beside={"float32": 2.0**-21},
    ),
    Case(
        ops.linear_cross_entropy,
        arguments_of_head,
        lambda x, weight, **of_loss: {"loss": torch_cross_entropy(F.linear(x, weight), **of_loss)},
    ),
    Case(
        ops.attention,
        lambda g, N, C: {"qkv": normal(g, 2, N, 6 * C), "heads": 2},
        torch_attention,
        emulated=(40,),
        cuda=st.sampled_from([7, 40, 64, 80, 128]),
    ),
    Case(
        ops.embedding,
        arguments_of_embedding,
        lambda tokens, wte, wpe: {"x": F.embedding(tokens, wte) + wpe[: tokens.shape[1]]},
    ),
    Case(
        ops.residual,
        lambda g, N, C: {"x": normal(g, N, C), "branch": normal(g, N, C)},
        lambda x, branch: {"y": x + branch},
    ),
    Case(
        ops.dropout,
        lambda g, N, C: {"x": normal(g, N, C), "p": 0.25, "seed": 5, "step": 3, "layer": 1},
        torch_dropout,
    ),
]


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request, backend_named):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    attention.use("own")
    yield backend_named(request.param)
    attention.use("auto")


def drawn(backend, check, widths):
    """Call check(generator, N, C) for sizes that hypothesis draws: enough rows for errors to be typical."""

    @settings(max_examples=EXAMPLES[backend.name], derandomize=True, database=None)
    @given(N=st.integers(24, 40), C=widths, seed=st.integers(0, 99))
    def run(N, C, seed):
        check(np.random.default_rng(seed), N, C)

    run()


def is_float(value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fV"


def cast(values: dict, dtype) -> dict:
    return {n: a.astype(dtype) if is_float(a) else a for n, a in values.items()}


def called(function, available: dict, run=lambda function, **values: function(**values)) -> dict:
    """The results of a function by name, given all that is available by name."""
    parameters = inspect.signature(function).parameters.values()
    takes = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY and p.name in available]
    gives = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    values = run(function, **{name: available[name] for name in takes})
    return dict(zip(gives, values if isinstance(values, tuple) else (values,), strict=True))


def tensor(value, backend, dtype):
    if not isinstance(value, np.ndarray):
        return value
    device = "cuda" if backend.name == "cuda" else "cpu"
    if not is_float(value):
        return torch.from_numpy(value).to(device)
    return torch.from_numpy(value.astype(np.float32)).to(device, getattr(torch, dtype.name))


def on_host(value: torch.Tensor) -> np.ndarray:
    return value.detach().double().cpu().numpy()


def theirs(case: Case, backend, dtype, arguments: dict, upstream: dict) -> dict:
    tensors = {name: tensor(value, backend, dtype) for name, value in arguments.items()}
    leaves = {n: t.requires_grad_() for n, t in tensors.items() if is_float(arguments[n])}
    results = case.torch(**tensors)
    reached = [name for name in results if f"d{name}" in upstream]
    seeds = [tensor(upstream[f"d{name}"], backend, dtype).to(results[name].dtype) for name in reached]
    torch.autograd.backward([results[name] for name in reached], seeds)
    gradients = {f"d{name}": leaf.grad for name, leaf in leaves.items()}
    return {name: on_host(value) for name, value in (results | gradients).items()}


def largest(x: np.ndarray) -> float:
    return np.abs(x).max(initial=0)


def assert_within_budget(
    name: str, mine: np.ndarray, their: np.ndarray, exact: np.ndarray, more: float = 0.0
) -> None:
    """In the norm of all errors, and in the largest of them; `more` is allowed in both."""
    errors = mine.astype(np.float64) - exact, their - exact, exact
    for measure, beside in (np.linalg.norm, IN_NORM), (largest, LARGEST[mine.dtype.name]):
        error, of_torch, size = (measure(np.ravel(x)) for x in errors)
        assert error <= 2 * of_torch + (beside + more) * size, (name, measure, error / size, of_torch / size)


def assert_all_within_budget(mine: dict, their: dict, exact: dict, more: float = 0.0) -> None:
    for name in their:
        assert_within_budget(name, mine[name], their[name], exact[name], more)


def test_every_op_with_a_kernel_has_a_budget():
    in_both = set.intersection(*({m.name for m in iter_modules(p.__path__)} for p in (ops, kernels)))
    assert {case.name for case in CASES} == in_both


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
# torch says so where the first product of a process is one of its backward, on a thread of its own
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")
def test_at_most_twice_the_error_of_torch(backend, dtype, case):
    forward, backward = case.op.forward, case.op.backward

    def run(function, **values):
        return backend(
            function, **{n: backend.array(v) if isinstance(v, np.ndarray) else v for n, v in values.items()}
        )

    def check(generator, N, C):
        arguments = cast(case.arguments(generator, N, C), dtype)
        wide = cast(arguments, np.float64)
        outputs = called(forward.text, wide)
        upstream = {
            f"d{name}": normal(generator, *value.shape).astype(np.float32 if name == "loss" else dtype)
            for name, value in outputs.items()
            if f"d{name}" in inspect.signature(backward).parameters
        }
        exact = {**outputs, **called(backward.text, {**wide, **outputs, **cast(upstream, np.float64)})}
        mine = called(forward, arguments, run)
        mine |= called(backward, {**arguments, **mine, **upstream}, run)
        their = theirs(case, backend, dtype, arguments, upstream)
        assert_all_within_budget(mine, their, exact, case.beside.get(dtype.name, 0))
        if hasattr(case.op, "forward_backward"):
            in_one_pass = called(case.op.forward_backward, {**arguments, **upstream}, run)
            assert_all_within_budget(in_one_pass, their, exact)

    drawn(backend, check, case.cuda if backend.name == "cuda" else st.sampled_from(case.emulated))


def test_adamw_at_most_twice_the_error_of_torch(backend, dtype):
    """Two steps, so that the moments have a past. The copy in the dtype is the float32 master, rounded."""
    lr, betas, eps, decay = 1e-2, (0.9, 0.95), 1e-8, 0.1
    names = "master", "m", "v", "compute"

    def steps(step, at, gradients, parameters, compute):
        master, m, v = (at(a.copy()) for a in (parameters, 0 * parameters, 0 * parameters))
        updates, constants = at(np.zeros(1, np.int64)), (*betas, eps, decay, math.inf, parameters.size)
        for gradient in gradients:
            step(master, at(gradient), m, v, compute, updates, lr, 1.0, *constants)
        return [master, m, v]

    def check(generator, N, C):
        parameters, *gradients = normal(generator, 3, N * C).astype(np.float32)
        compute = backend.array(np.zeros(N * C, dtype))
        run = functools.partial(backend, adamw.step)
        mine = [*steps(run, backend.array, gradients, parameters, compute), compute]
        wide = np.float64(gradients), np.float64(parameters)
        exact = steps(adamw.step.text, np.asarray, *wide, None)
        exact.append(exact[0])
        leaf = tensor(parameters, backend, np.dtype(np.float32)).requires_grad_()
        optimizer = torch.optim.AdamW([leaf], lr=lr, betas=betas, eps=eps, weight_decay=decay)
        for gradient in gradients:
            leaf.grad = tensor(gradient, backend, np.dtype(np.float32))
            optimizer.step()
        state = optimizer.state[leaf]
        their = leaf, state["exp_avg"], state["exp_avg_sq"], leaf.to(getattr(torch, dtype.name))
        for name, a, b, right in zip(names, map(to_numpy, mine), map(on_host, their), exact, strict=True):
            assert_within_budget(name, a, b, right)

    drawn(backend, check, st.integers(20, 60))
