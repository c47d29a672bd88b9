"""GELU with bias, softmax and residual addition in bfloat16: llmlab's kernels, PyTorch eager and compiled.

    python benchmarks/elementwise.py

Time on the device (ours by CUDA graphs); percent of the speed of a device-to-device copy, counting only the
bytes that must move: each input read once, each result written once. Results go to
benchmarks/results/elementwise_h200.json (or the GPU's name).
"""

from __future__ import annotations

from collections.abc import Callable

import cupy
import numpy as np
import torch
import torch._functorch.config
from common import copy_bandwidth, write_results
from graphs import Run, compared, random, result_name, to_torch

from llmlab.ops import gelu, residual, softmax

N, C, LONG = 65_536, 3_072, 50_304


def main() -> None:
    copy = copy_bandwidth()
    print(f"copy {copy:.2f} TB/s")
    rows = [compared(name, nbytes, copy, ours, theirs) for name, (nbytes, ours, theirs) in cases().items()]
    data = {"copy_TB_per_s": round(copy, 3), "dtype": "bfloat16", "rows": rows}
    write_results(result_name("elementwise"), data)


def cases() -> dict[str, tuple[int, Run, dict[str, Run]]]:
    """For each kernel the bytes that must move, a run by llmlab, and its peers' runs by name."""
    x, dy, bias, y = random(N, C), random(N, C), random(C), random(N, C)
    dbias = cupy.zeros(C, np.float32)
    tx, tdy, tbias = map(to_torch, (x, dy, bias))
    tx.requires_grad_(), tbias.requires_grad_()
    torch._functorch.config.donated_buffer = False  # one forward, differentiated many times
    compiled = torch.compile(_gelu)
    outputs = {"torch eager": _gelu(tx, tbias), "torch.compile": compiled(tx, tbias)}

    def backward(output: torch.Tensor) -> Run:
        return lambda: torch.autograd.grad(output, (tx, tbias), tdy, retain_graph=True)

    found = {
        f"bias + GELU forward {N} x {C}": (
            2 * x.nbytes,
            lambda: gelu.forward(x, bias, y=y),
            {"torch eager": _no_grad(_gelu, tx, tbias), "torch.compile": _no_grad(compiled, tx, tbias)},
        ),
        f"bias + GELU backward {N} x {C}": (
            3 * x.nbytes,
            lambda: gelu.backward(dy, x, bias, dx=y, dbias=dbias),
            {system: backward(output) for system, output in outputs.items()},
        ),
        f"residual addition {N} x {C}": (
            3 * x.nbytes,
            lambda: residual.forward(x, dy, y=y),
            {"torch eager": _no_grad(torch.add, tx, tdy)},
        ),
    }
    return found | _softmax(x.reshape(-1, 1024)) | _softmax(random(16_384, LONG))


def _gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x + bias, approximate="tanh")


def _softmax(x: cupy.ndarray) -> dict[str, tuple[int, Run, dict[str, Run]]]:
    dy, out = random(*x.shape), cupy.empty_like(x)
    tx, tdy, (N, C) = to_torch(x), to_torch(dy), x.shape
    backward = torch.ops.aten._softmax_backward_data
    return {
        f"softmax forward {N} x {C}": (
            2 * x.nbytes,
            lambda: softmax.forward(x, y=out),
            {"torch eager": lambda: torch.softmax(tx, -1)},
        ),
        f"softmax backward {N} x {C}": (
            3 * x.nbytes,
            lambda: softmax.backward(dy, x, dx=out),
            {"torch eager": lambda: backward(tdy, tx, -1, torch.bfloat16)},
        ),
    }


def _no_grad(function: Callable, *arguments: torch.Tensor) -> Run:
    return torch.no_grad()(lambda: function(*arguments))


if __name__ == "__main__":
    main()
