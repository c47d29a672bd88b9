"""Cross-entropy, AdamW, embedding and matrix products: llmlab's kernels, PyTorch's, and Liger-Kernel's.

    python benchmarks/kernels.py     # Liger-Kernel is measured where it is installed

Time on the device (ours by CUDA graphs); percent of the speed of a copy in the same run, counting only the
bytes that must move; matrix products in TFLOP/s. Results go to benchmarks/results/kernels_h200.json (or the
GPU's name).
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import cupy
import ml_dtypes
import numpy as np
import torch
import torch._functorch.config
from common import copy_bandwidth, write_results
from graphs import (
    Run,
    captured_by_cupy,
    compared,
    liger,
    median_us,
    random,
    repeated_by_torch,
    result_name,
    to_torch,
)

from llmlab.kernels import cublas
from llmlab.ops import cross_entropy, embedding
from llmlab.optim import adamw

ROWS, VOCABULARY, PADDED = 32_768, 50_257, 50_304
PARAMETERS = 124_475_904, 1_557_611_200  # GPT-2 124M and 1.5B
B, T, C = 64, 1_024, 768
LAYERS = {
    "qkv": (768, 2304),
    "proj": (768, 768),
    "fc": (768, 3072),
    "fc-proj": (3072, 768),
    "head": (768, 50304),
}


def main() -> None:
    torch._functorch.config.donated_buffer = False  # one forward, differentiated many times
    copy = copy_bandwidth()
    print(f"copy {copy:.2f} TB/s")
    rows = []
    optimizers = [functools.partial(_adamw, n) for n in PARAMETERS]
    for case in (_cross_entropy, *optimizers, _embedding_forward, _embedding_backward):
        kernel, nbytes, ours, theirs = case()
        rows.append(compared(kernel, nbytes, copy, ours, theirs))
        del ours, theirs
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
    products = [matrix_products(name, *sizes) for name, sizes in LAYERS.items()]
    data = {"copy_TB_per_s": round(copy, 3), "dtype": "bfloat16", "rows": rows, "matrix_products": products}
    write_results(result_name("kernels"), data)


Case = tuple[str, int, Run, dict[str, Run]]


def _cross_entropy() -> Case:
    logits = random(ROWS, PADDED)
    dlogits = cupy.empty_like(logits)
    targets = cupy.random.randint(0, VOCABULARY, ROWS).astype(np.int32)
    loss = cupy.empty((), np.float32)
    theirs, at = to_torch(logits).requires_grad_(), to_torch(targets).long()

    def ours() -> None:
        cross_entropy.forward_backward(
            logits, targets, 1.0, vocabulary=VOCABULARY, loss=loss, dlogits=dlogits
        )

    def step(function: Callable) -> Run:
        return lambda: torch.autograd.grad(function(theirs, at), theirs)

    eager = torch.nn.functional.cross_entropy
    name = f"cross-entropy, loss and gradient {ROWS} x {PADDED}"
    peers = {"torch eager": step(eager), "torch.compile": step(torch.compile(eager))}
    if liger():  # its forward writes the gradient over the logits
        peers["Liger-Kernel"] = lambda: liger().LigerCrossEntropyFunction.apply(theirs, at, None)
    return name, 2 * logits.nbytes, ours, peers


def _adamw(n: int) -> Case:
    """Clipping by the global norm, AdamW, and the bfloat16 copy; PyTorch has all parameters in one tensor."""
    master, grad, m = (cupy.random.standard_normal(n, dtype=np.float32) for _ in range(3))
    v, copy = m * m, cupy.empty(n, ml_dtypes.bfloat16)
    norm, updates = cupy.empty(1, np.float32), cupy.zeros(1, np.int64)

    def ours() -> None:
        adamw.step(master, grad, m, v, copy, updates, 1e-4, 1.0, 0.9, 0.95, 1e-8, 0.1, 1.0, n, norm=norm)

    parameter = torch.nn.Parameter(to_torch(master).clone())
    parameter.grad, low = to_torch(grad).clone(), to_torch(copy).clone()
    optimizer = torch.optim.AdamW([parameter], lr=1e-4, fused=True, capturable=True)

    def theirs() -> None:
        torch.nn.utils.clip_grad_norm_([parameter], 1.0)
        optimizer.step()
        low.copy_(parameter.detach())

    return f"clip + AdamW + bfloat16 copy, {n / 1e6:.0f} M", 34 * n, ours, {"torch eager": theirs}


def _tables() -> tuple[cupy.ndarray, ...]:
    """Tokens, frequent and rare ones as in a text, and both tables."""
    ids = (cupy.random.pareto(0.7, (B, T)) * 20).astype(np.int64) % VOCABULARY
    return ids.astype(np.int32), random(PADDED, C), random(T, C)


def _lookup(tokens: torch.Tensor, wte: torch.Tensor, wpe: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.embedding(tokens, wte) + wpe


def _embedding_forward() -> Case:
    tokens, wte, wpe = _tables()
    x = cupy.empty((B, T, C), wte.dtype)
    theirs = [to_torch(a) for a in (tokens, wte, wpe)]
    compiled = torch.compile(_lookup)
    return (
        f"embedding forward {B * T} x {C}",
        x.nbytes,
        lambda: embedding.forward(tokens, wte, wpe, x=x),
        {"torch eager": lambda: _lookup(*theirs), "torch.compile": lambda: compiled(*theirs)},
    )


def _embedding_backward() -> Case:
    tokens, wte, wpe = _tables()
    dx = random(B, T, C)
    dwte, dwpe = cupy.zeros(wte.shape, np.float32), cupy.zeros(wpe.shape, np.float32)
    touched = int(cupy.unique(tokens).size) * C * dwte.itemsize
    tables = [to_torch(a).requires_grad_() for a in (wte, wpe)]
    t_tokens, t_dx = to_torch(tokens), to_torch(dx)
    kept = [function(t_tokens, *tables) for function in (_lookup, torch.compile(_lookup))]
    eager, compiled = (lambda y=y: torch.autograd.grad(y, tables, t_dx, retain_graph=True) for y in kept)
    return (
        f"embedding backward {B * T} x {C}",
        dx.nbytes + 2 * (touched + dwpe.nbytes),
        lambda: embedding.backward(dx, tokens, wte, wpe, dwte=dwte, dwpe=dwpe),
        {"torch eager": eager, "torch.compile": compiled},
    )


def matrix_products(layer: str, C_in: int, C_out: int) -> dict[str, Any]:
    """Forward, gradient by the input, gradient by the weight (ours added into float32), in TFLOP/s."""
    N = B * T
    x, weight, y = random(N, C_in), random(C_out, C_in), random(N, C_out)
    dweight = cupy.zeros((C_out, C_in), np.float32)
    t_x, t_weight, t_y = map(to_torch, (x, weight, y))
    ours = {
        "forward": lambda: cublas.product(x, weight, y, transpose_b=True),
        "d-input": lambda: cublas.product(y, weight, x),
        "d-weight": lambda: cublas.product(y, x, dweight, transpose_a=True, add=True),
    }
    theirs = {
        "forward": lambda: torch.mm(t_x, t_weight.T, out=t_y),
        "d-input": lambda: torch.mm(t_y, t_weight, out=t_x),
        "d-weight": lambda: torch.mm(t_y.T, t_x),
    }
    row: dict[str, Any] = {"layer": layer, "N": N, "C_in": C_in, "C_out": C_out}
    for name in ours:
        us = {
            "llmlab": median_us(captured_by_cupy(ours[name])),
            "torch": median_us(repeated_by_torch(theirs[name])),
        }
        row[name] = {system: round(2e-6 * N * C_in * C_out / time) for system, time in us.items()}
    print(f"{layer:<8} {C_in} -> {C_out}", *(f"{k} {row[k]}" for k in ours), "TFLOP/s", sep="   ", flush=True)
    return row


if __name__ == "__main__":
    main()
