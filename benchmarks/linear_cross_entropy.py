"""The head of GPT-2 with its cross-entropy, both ways: in one piece, in chunks of rows, by PyTorch, by Liger.

    python benchmarks/linear_cross_entropy.py     # Liger-Kernel is measured where it is installed

Milliseconds of loss and both gradients in bfloat16, and the memory that they need beside arguments and
results. Ours add the weight's gradient up in float32; so does Liger-Kernel here (`accum_dtype`). Results go
to benchmarks/results/linear_cross_entropy_h200.json (or the GPU's name).
"""

from __future__ import annotations

from collections.abc import Iterator

import cupy
import numpy as np
import torch
from common import milliseconds, write_results
from graphs import Run, liger, random, result_name, to_torch

from llmlab.ops import cross_entropy, linear, linear_cross_entropy

N, C, V = 65_536, 768, 50_304
CHUNKS = 16_384, 8_192, 4_096, 2_048


def main() -> None:
    x = random(N, C)
    weight = (cupy.random.standard_normal((V, C), dtype=np.float32) * 0.05).astype(x.dtype)
    targets = cupy.random.randint(0, V, N).astype(np.int32)
    rows = []
    for system, logits_rows, run, nbytes in (*ours(x, weight, targets), *peers(x, weight, targets)):
        ms = milliseconds(run, repeats=12, warmup=3)
        row = {"system": system, "logits_rows": logits_rows, "ms": round(ms, 3),
               "TFLOP_per_s": round(6 * N * C * V / ms / 1e9), "gib": round(nbytes() / 2**30, 2)}
        rows.append(row)
        print(*(f"{name} {value}" for name, value in row.items()), sep="   ", flush=True)
    data = {"N": N, "C": C, "V": V, "dtype": "bfloat16", "rows": rows}
    write_results(result_name("linear_cross_entropy"), data)


def ours(x: cupy.ndarray, weight: cupy.ndarray, targets: cupy.ndarray) -> Iterator[tuple]:
    """System, rows of logits at a time, a run, and the bytes of the logits."""
    dx, dweight = cupy.empty_like(x), cupy.zeros((V, C), np.float32)
    loss, dloss = cupy.empty((), np.float32), cupy.ones((), np.float32)
    logits = cupy.empty((N, V), x.dtype)

    def apart() -> None:
        linear.forward(x, weight, y=logits)
        cross_entropy.forward_backward(logits, targets, dloss, loss=loss, dlogits=logits)
        linear.backward(logits, x, weight, dx=dx, dweight=dweight)

    yield "llmlab", N, apart, lambda: logits.nbytes
    for chunk in CHUNKS:
        part = logits[:chunk]
        yield "llmlab", chunk, lambda part=part: linear_cross_entropy.forward_backward(
            x, weight, targets, dloss, loss=loss, dx=dx, dweight=dweight, logits=part
        ), lambda part=part: part.nbytes


def peers(x: cupy.ndarray, weight: cupy.ndarray, targets: cupy.ndarray) -> Iterator[tuple]:
    """The same of PyTorch and Liger-Kernel, their bytes by PyTorch's allocator, gradients taken off."""
    cupy.get_default_memory_pool().free_all_blocks()
    a, w, at = to_torch(x).requires_grad_(), to_torch(weight).requires_grad_(), to_torch(targets).long()

    def head(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(torch.nn.functional.linear(a, w), at)

    functions = {"torch eager": head, "torch.compile": torch.compile(head)}
    if liger():
        fused = liger().LigerFusedLinearCrossEntropyFunction
        functions["Liger-Kernel"] = lambda a, w: fused.apply(
            a, w, at, None, None, -100, 0.0, 0.0, "mean", None, False, torch.float32
        )[0]
    for system, function in functions.items():
        def run(function=function) -> tuple:
            return torch.autograd.grad(function(a, w), (a, w))

        yield system, None, run, lambda run=run: _bytes_beside_gradients(run)


def _bytes_beside_gradients(run: Run) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    gradients = run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before - sum(g.nbytes for g in gradients)


if __name__ == "__main__":
    main()
