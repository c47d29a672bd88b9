"""GELU with bias, softmax and residual addition in bfloat16: llmlab's kernels, PyTorch eager and compiled.

    python benchmarks/elementwise.py

Percent of the speed of a device-to-device copy, counting only the bytes that must move: each input read once,
each result written once. Results go to benchmarks/results/elementwise.json.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import ml_dtypes
import numpy as np
import torch
import torch._functorch.config
from common import copy_bandwidth, milliseconds, write_results

from llmlab.ops import gelu, residual, softmax

N, C, LONG = 65_536, 3_072, 50_304


def main() -> None:
    copy = copy_bandwidth()
    rows = {name: _measure(*case, copy) for name, case in cases().items()}
    print(f"copy {copy:.2f} TB/s; µs, percent of copy")
    for name, row in rows.items():
        cells = (f"{system}: {m['us']:7.0f} µs {m['percent']:5.1f} %" for system, m in row.items())
        print(f"{name:<34}", *cells, sep="   ")
    write_results("elementwise", {"copy_TB_per_s": round(copy, 3), "dtype": "bfloat16", "kernels": rows})


def cases() -> dict[str, tuple[int, Callable[[], Any], Callable[[], Any], Callable[[], Any] | None]]:
    """For each kernel the bytes that must move, and runs by llmlab, by PyTorch, by what it compiles."""
    x, dy, bias, y = _random(N, C), _random(N, C), _random(C), _random(N, C)
    dbias = cupy.zeros(C, np.float32)
    tx, tdy, tbias = map(_torch, (x, dy, bias))
    tx.requires_grad_(), tbias.requires_grad_()
    functional = torch.nn.functional

    def torch_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x + bias, approximate="tanh")

    torch._functorch.config.donated_buffer = False  # one forward, differentiated many times
    compiled = torch.compile(torch_gelu)
    eager_output, compiled_output = torch_gelu(tx, tbias), compiled(tx, tbias)

    def backward(output: torch.Tensor) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(output, (tx, tbias), tdy, retain_graph=True)

    short, wide = x.reshape(-1, 1024), _random(16_384, LONG)
    short_y, wide_y = cupy.empty_like(short), cupy.empty_like(wide)
    short_dy, tshort, twide = dy.reshape(-1, 1024), _torch(x.reshape(-1, 1024)), _torch(wide)
    softmax_backward = torch.ops.aten._softmax_backward_data
    return {
        f"bias + GELU forward {N} x {C}": (
            2 * x.nbytes, lambda: gelu.forward(x, bias, y=y), _no_grad(torch_gelu, tx, tbias),
            _no_grad(compiled, tx, tbias),
        ),
        f"bias + GELU backward {N} x {C}": (
            3 * x.nbytes, lambda: gelu.backward(dy, x, bias, dx=y, dbias=dbias), backward(eager_output),
            backward(compiled_output),
        ),
        f"residual addition {N} x {C}": (
            3 * x.nbytes, lambda: residual.forward(x, dy, y=y), _no_grad(torch.add, tx, tdy), None,
        ),
        f"softmax forward {short.shape[0]} x 1024": (
            2 * x.nbytes, lambda: softmax.forward(short, y=short_y), lambda: torch.softmax(tshort, -1), None,
        ),
        f"softmax backward {short.shape[0]} x 1024": (
            3 * x.nbytes, lambda: softmax.backward(short_dy, short, dx=short_y),
            lambda: softmax_backward(_torch(short_dy), tshort, -1, torch.bfloat16), None,
        ),
        f"softmax forward 16384 x {LONG}": (
            2 * wide.nbytes, lambda: softmax.forward(wide, y=wide_y), lambda: torch.softmax(twide, -1), None,
        ),
        f"softmax backward 16384 x {LONG}": (
            3 * wide.nbytes, lambda: softmax.backward(wide_y, wide, dx=wide_y),
            lambda: softmax_backward(_torch(wide_y), twide, -1, torch.bfloat16), None,
        ),
    }  # fmt: skip


def _measure(nbytes: int, ours: Callable, eager: Callable, compiled: Callable | None, copy: float) -> dict:
    runs = {"llmlab": ours, "torch eager": eager, "torch.compile": compiled}
    times = {system: milliseconds(run) for system, run in runs.items() if run is not None}
    return {
        system: {"us": round(1e3 * ms, 1), "percent": round(100 * nbytes / ms / 1e9 / copy, 1)}
        for system, ms in times.items()
    }


def _random(*shape: int) -> cupy.ndarray:
    return cupy.random.default_rng(0).standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)


def _torch(array: cupy.ndarray) -> torch.Tensor:
    return torch.from_dlpack(array)


def _no_grad(function: Callable, *arguments: torch.Tensor) -> Callable[[], Any]:
    return torch.no_grad()(lambda: function(*arguments))


if __name__ == "__main__":
    main()
