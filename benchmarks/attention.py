"""Attention side by side: llmlab's own kernels, cuDNN behind the same door, and PyTorch's flash and cuDNN.

    python benchmarks/attention.py

prints milliseconds forward and backward for causal bfloat16 attention, and writes
results/attention_<gpu>.json.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import common
import cupy
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from llmlab.arrays import bfloat16
from llmlab.kernels import attention as launcher
from llmlab.ops import attention

# (B, T, H, D): GPT-2 124M at the batch of the training benchmark, a small batch, long sequences, other heads.
SHAPES = [
    (64, 1024, 12, 64),
    (4, 1024, 12, 64),
    (4, 8192, 12, 64),
    (32, 1024, 20, 64),
    (32, 1024, 16, 80),
    (32, 1024, 16, 96),
    (32, 1024, 16, 128),
]

Timed = tuple[Callable[[], object], Callable[[], object]]


def llmlab(implementation: str, B: int, T: int, H: int, D: int) -> Timed:
    """Forward and backward through the op's door, into buffers that exist, as in training."""
    launcher.use(implementation)
    qkv = cupy.random.standard_normal((B, T, 3 * H * D), cupy.float32).astype(bfloat16)
    dy = cupy.random.standard_normal((B, T, H * D), cupy.float32).astype(bfloat16)
    y, lse = attention.forward(qkv, H)
    dqkv = cupy.empty_like(qkv)
    return (
        lambda: attention.forward(qkv, H, y=y, lse=lse),
        lambda: attention.backward(dy, qkv, y, lse, H, dqkv=dqkv),
    )


def pytorch(backend: SDPBackend, B: int, T: int, H: int, D: int) -> Timed:
    """scaled_dot_product_attention on views of a packed tensor, as in nanoGPT."""
    qkv = torch.randn(B, T, 3 * H * D, device="cuda", dtype=torch.bfloat16)
    q, k, v = (
        x.unflatten(-1, (H, D)).transpose(1, 2).detach().requires_grad_() for x in qkv.chunk(3, -1)
    )
    dy = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

    def forward() -> torch.Tensor:
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    y = forward()
    return forward, lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)


ROWS = {
    "llmlab own": functools.partial(llmlab, "own"),
    "llmlab cudnn": functools.partial(llmlab, "cudnn"),
    "torch flash": functools.partial(pytorch, SDPBackend.FLASH_ATTENTION),
    "torch cudnn": functools.partial(pytorch, SDPBackend.CUDNN_ATTENTION),
}


def measure(make: Callable[..., Timed], B: int, T: int, H: int, D: int) -> dict[str, float]:
    """Milliseconds, and TFLOP/s counting two products forward and five backward over the lower triangle.

    CuPy and PyTorch both work in the default stream here, so CuPy's events time either.
    """
    forward, backward = make(B, T, H, D)
    times = {"forward": common.milliseconds(forward), "backward": common.milliseconds(backward)}
    product = B * H * T * (T + 1) * D / 1e9
    rates = {
        f"{name}_tflops": count * product / times[name] for name, count in (("forward", 2), ("backward", 5))
    }
    return {**times, **rates}


def main() -> None:
    results = []
    bandwidth = common.copy_bandwidth()
    print(f"{common.device_name()}, copy {bandwidth:.2f} TB/s; milliseconds (TFLOP/s), causal, bfloat16")
    for shape in SHAPES:
        B, T, H, D = shape
        print(f"B={B} T={T} H={H} D={D}")
        for name, make in ROWS.items():
            try:
                row = measure(make, *shape)
            except (RuntimeError, ValueError) as error:
                print(f"  {name:14} {error}")
                continue
            results.append({"B": B, "T": T, "H": H, "D": D, "implementation": name, **row})
            print(f"  {name:14} forward {row['forward']:7.3f} ({row['forward_tflops']:4.0f})"
                  f"  backward {row['backward']:7.3f} ({row['backward_tflops']:4.0f})", flush=True)
            cupy.get_default_memory_pool().free_all_blocks()
            torch.cuda.empty_cache()
    gpu = common.device_name().split()[-1].lower()
    data = {"dtype": "bfloat16", "copy_tb_s": bandwidth, "results": results}
    path = common.write_results(f"attention_{gpu}", data)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
