"""Attention by cuDNN, through the optional package nvidia-cudnn-frontend, on CuPy's memory and stream.

q, k and v are read where they lie in the packed (B, T, 3, H, D), and their gradients written there, since
cuDNN takes strides. A plan (cuDNN's graph with its workspace) is built once for each shape, and kept.
"""

from __future__ import annotations

import functools
import importlib
import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from llmlab.arrays import Array, gpu_available, is_cupy


@functools.cache
def available() -> bool:
    """Whether there is a GPU, the package, and a libcudnn that it finds. Asked once."""
    if not gpu_available():
        return False
    try:
        importlib.import_module("cudnn")
    except Exception:  # package, bindings or libcudnn missing: each raises something else, all mean no
        return False
    return True


def obstacle(qkv: Array, heads: int) -> str | None:
    """Why cuDNN cannot attend over this packed array of 16-bit numbers, or None if it can."""
    if not is_cupy(qkv) or not available():
        return "no GPU array, or nvidia-cudnn-frontend cannot be imported"
    if qkv.size >= 2**31:
        return "past 2^31 elements cuDNN 9.19 gives wrong gradients"
    try:
        _plan("forward", *_sizes(qkv, heads))
        _plan("backward", *_sizes(qkv, heads))
    except _cudnn().cudnnGraphNotSupportedError as error:
        return f"cuDNN has no kernel for this shape: {error}"
    return None


def forward(qkv: Array, heads: int, y: Array, lse: Array) -> None:
    """Fill y and lse."""
    _plan("forward", *_sizes(qkv, heads)).execute(*_thirds(qkv), y.data.ptr, lse.data.ptr)


def backward(dy: Array, qkv: Array, y: Array, lse: Array, heads: int, dqkv: Array) -> None:
    """Fill dqkv."""
    pointers = y.data.ptr, dy.data.ptr, lse.data.ptr
    _plan("backward", *_sizes(qkv, heads)).execute(*_thirds(qkv), *pointers, *_thirds(dqkv))


def _sizes(qkv: Array, heads: int) -> tuple[int, str, int, int, int, int]:
    B, T, width = qkv.shape
    return qkv.device.id, qkv.dtype.name, B, T, heads, width // 3 // heads


def _thirds(qkv: Array) -> tuple[int, int, int]:
    """Where q, k and v of the first token lie."""
    start, step = qkv.data.ptr, qkv.shape[2] // 3 * qkv.itemsize
    return start, start + step, start + 2 * step


def _cudnn() -> ModuleType:
    return importlib.import_module("cudnn")


@functools.cache
def _handle(device: int) -> Any:
    return _cudnn().create_handle()


@dataclass(frozen=True)
class _Plan:
    """A graph that is ready to run: its operands in the order in which `execute` takes their addresses."""

    graph: Any
    operands: tuple
    workspace: Array
    handle: Any

    def execute(self, *pointers: int) -> None:
        import cupy

        _cudnn().set_stream(self.handle, cupy.cuda.get_current_stream().ptr)
        self.graph.execute(
            dict(zip(self.operands, pointers, strict=True)), self.workspace.data.ptr, handle=self.handle
        )


@functools.cache
def _plan(direction: str, device: int, dtype: str, B: int, T: int, H: int, D: int) -> _Plan:
    import cupy

    cudnn = _cudnn()
    with cupy.cuda.Device(device):
        handle = _handle(device)
        graph = cudnn.pygraph(
            io_data_type=cudnn.data_type.HALF if dtype == "float16" else cudnn.data_type.BFLOAT16,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=handle,
        )
        operands = (_forward_graph if direction == "forward" else _backward_graph)(cudnn, graph, B, T, H, D)
        graph.build([cudnn.heur_mode.A])
        workspace = cupy.empty(max(1, graph.get_workspace_size()), cupy.uint8)
        return _Plan(graph, operands, workspace, handle)


def _layouts(B: int, T: int, H: int, D: int) -> tuple[dict, dict, dict]:
    """Sizes and strides of a third of a packed array, of a plain one, and of lse, in cuDNN's order."""
    C = H * D
    packed = {"dim": [B, H, T, D], "stride": [T * 3 * C, D, 3 * C, 1]}
    plain = {"dim": [B, H, T, D], "stride": [T * C, D, C, 1]}
    return packed, plain, {"dim": [B, H, T, 1], "stride": [H * T, T, 1, 1]}


def _as_output(tensor: Any, layout: dict) -> Any:
    return tensor.set_output(True).set_dim(layout["dim"]).set_stride(layout["stride"])


def _forward_graph(cudnn: ModuleType, graph: Any, B: int, T: int, H: int, D: int) -> tuple:
    packed, plain, of_lse = _layouts(B, T, H, D)
    q, k, v = (graph.tensor(name=name, **packed) for name in ("q", "k", "v"))
    y, lse = graph.sdpa(
        q=q, k=k, v=v, attn_scale=1 / math.sqrt(D), use_causal_mask=True, generate_stats=True
    )
    _as_output(y, plain)
    _as_output(lse, of_lse).set_data_type(cudnn.data_type.FLOAT)
    return q, k, v, y, lse


def _backward_graph(cudnn: ModuleType, graph: Any, B: int, T: int, H: int, D: int) -> tuple:
    packed, plain, of_lse = _layouts(B, T, H, D)
    q, k, v = (graph.tensor(name=name, **packed) for name in ("q", "k", "v"))
    y, dy = (graph.tensor(name=name, **plain) for name in ("y", "dy"))
    lse = graph.tensor(name="lse", data_type=cudnn.data_type.FLOAT, **of_lse)
    gradients = graph.sdpa_backward(
        q=q, k=k, v=v, o=y, dO=dy, stats=lse,
        attn_scale=1 / math.sqrt(D), use_causal_mask=True, use_deterministic_algorithm=True,
    )
    for gradient in gradients:
        _as_output(gradient, packed)
    return q, k, v, y, dy, lse, *gradients
