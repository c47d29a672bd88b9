"""LayerNorm in bfloat16, alone and after a residual sum: llmlab's kernels, PyTorch's, and Liger-Kernel's.

    python benchmarks/layernorm.py     # Liger-Kernel is measured where it is installed

Time on the device (ours by CUDA graphs). Percent of the speed of a 2 GiB device-to-device copy in the same
run, counting only the bytes that must move: each input read once, each result written once. What a copy of
just as many bytes takes stands beside it: launching and draining cost some microseconds, whatever the kernel.
Results go to benchmarks/results/layernorm_h200.json (or the GPU's name).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import torch
import torch._functorch.config
from common import copy_bandwidth, write_results
from graphs import Run, captured_by_cupy, compared, liger, median_us, random, result_name, to_torch

from llmlab.ops import layernorm, residual_layernorm

SHAPES = (65_536, 768), (65_536, 1_600), (32_768, 4_096)


def main() -> None:
    copy = copy_bandwidth()
    print(f"copy {copy:.2f} TB/s")
    rows = []
    for N, C in SHAPES:
        for kernel, (nbytes, ours, theirs) in cases(N, C).items():
            row = compared(f"{kernel} {N} x {C}", nbytes, copy, ours, theirs)
            same = median_us(captured_by_cupy(_copy(nbytes)))
            print(f"   a copy of as many bytes: {same:.1f} µs")
            rows.append({"N": N, "C": C, **row, "kernel": kernel, "copy_of_as_many_bytes_us": round(same, 1)})
        # after each shape: compiling may take longer than whoever runs this has time
        data = {"copy_TB_per_s": round(copy, 3), "dtype": "bfloat16", "rows": rows}
        write_results(result_name("layernorm"), data)


def _copy(nbytes: int) -> Run:
    """A copy that moves nbytes, half of them read and half written."""
    source, target = cupy.zeros(nbytes // 2, np.uint8), cupy.empty(nbytes // 2, np.uint8)
    return lambda: cupy.copyto(target, source)


def cases(N: int, C: int) -> dict[str, tuple[int, Run, dict[str, Run]]]:
    """For each kernel the bytes that must move, a run by llmlab, and its peers' runs by name."""
    x, branch, dy, dr, y, r = (random(N, C) for _ in range(6))
    weight, bias, branch_bias = random(C), random(C), random(C)
    _, mean, rstd = layernorm.forward(x, weight, bias)
    dweight, dbias, dbranch_bias = (cupy.zeros(C, np.float32) for _ in range(3))
    sums = {"dweight": dweight, "dbias": dbias}
    results = {"y": y, "mean": mean, "rstd": rstd}

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (C,), weight, bias)

    def residual_norm(x, branch, branch_bias, weight, bias) -> tuple[torch.Tensor, torch.Tensor]:
        r = x + (branch + branch_bias)
        return r, norm(r, weight, bias)

    torch._dynamo.reset()
    torch._functorch.config.donated_buffer = False  # one forward, differentiated many times
    t_x, t_branch, t_branch_bias, t_weight, t_bias = (
        to_torch(a).requires_grad_() for a in (x, branch, branch_bias, weight, bias)
    )
    t_dy, t_dr = to_torch(dy), to_torch(dr)
    alone, fused = (t_x, t_weight, t_bias), (t_x, t_branch, t_branch_bias, t_weight, t_bias)
    peers = {
        "torch eager": (*_both(norm, alone, (t_dy,)), *_both(residual_norm, fused, (t_dr, t_dy))),
        "torch.compile": (
            *_both(torch.compile(norm), alone, (t_dy,)),
            *_both(torch.compile(residual_norm), fused, (t_dr, t_dy)),
        ),
    }
    if liger():
        function = liger().LigerLayerNormFunction
        peers["Liger-Kernel"] = _both(lambda *inputs: function.apply(*inputs, 1e-5), alone, (t_dy,))
    ours = {
        "forward": (2, lambda: layernorm.forward(x, weight, bias, **results)),
        "backward": (3, lambda: layernorm.backward(dy, x, weight, mean, rstd, dx=y, **sums)),
        "residual forward": (
            4,
            lambda: residual_layernorm.forward(x, branch, weight, bias, branch_bias, r=r, **results),
        ),
        "residual backward": (
            4,
            lambda: residual_layernorm.backward(
                dr, dy, x, weight, mean, rstd, branch_bias, dx=y, dbranch=y, dbranch_bias=dbranch_bias, **sums
            ),
        ),
    }
    return {
        kernel: (matrices * x.nbytes, run, {peer: runs[i] for peer, runs in peers.items() if i < len(runs)})
        for i, (kernel, (matrices, run)) in enumerate(ours.items())
    }


def _both(function: Callable, inputs: tuple, gradients: tuple) -> tuple[Run, Run]:
    """A run of the function, and a run of its backward from outputs that are kept."""

    def forward() -> Any:
        with torch.no_grad():
            return function(*inputs)

    kept = function(*inputs)
    outputs = kept if isinstance(kept, tuple) else (kept,)
    return forward, lambda: torch.autograd.grad(outputs, inputs, gradients, retain_graph=True)


if __name__ == "__main__":
    main()
