"""Launches attention for ``llmlab.ops.attention``: llmlab's own kernels, or cuDNN's where the setting allows.

llmlab has two kernels of its own. ``attention.cu`` multiplies on tensor cores: bfloat16 and float16, D a
multiple of 8 up to 128, arrays on 16-byte boundaries. ``attention_scalar.cu`` does the rest up to D = 256.
The third implementation is cuDNN's, through the optional package nvidia-cudnn-frontend. `use` chooses; all are
deterministic, and all keep the same two things for backward, y and lse.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from llmlab.arrays import Array, bfloat16, float16, float32, is_cupy, namespace
from llmlab.kernels import attention_cudnn, guards
from llmlab.kernels.loader import load
from llmlab.kernels.signature import cuda_type

IMPLEMENTATIONS = ("auto", "own", "cudnn")

_setting = "auto"


def use(implementation: str) -> None:
    """Choose who computes attention on a GPU from now on.

    Args:
        implementation: ``"own"``, ``"cudnn"``, or ``"auto"``: cuDNN where it is and takes the shape.

    Raises:
        ValueError: for another name, and for ``"cudnn"`` where it cannot be imported.

    >>> use("own")
    >>> use("auto")
    """
    global _setting
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"implementation is {implementation!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    if implementation == "cudnn" and not attention_cudnn.available():
        raise ValueError(
            'implementation="cudnn" needs a GPU and two packages: '
            "pip install nvidia-cudnn-frontend nvidia-cudnn-cu13"
        )
    _setting = implementation


def chosen(qkv: Array, heads: int) -> str:
    """The name of the implementation that runs for these arrays: ``"own"`` or ``"cudnn"``. For the log.

    >>> import numpy as np
    >>> chosen(np.zeros((1, 4, 12), np.float32), heads=1)
    'own'
    """
    if _setting == "own" or not is_cupy(qkv):
        return "own"
    obstacle = attention_cudnn.obstacle(qkv, heads)
    if obstacle is None:
        return "cudnn"
    if _setting == "cudnn":
        raise ValueError(f'attention with implementation="cudnn": {obstacle}; use("auto") or use("own")')
    return "own"


def forward(
    qkv: Array, heads: int, *, y: Array | None = None, lse: Array | None = None
) -> tuple[Array, Array]:
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    y = guards.result("y", y, (B, T, C), qkv.dtype, like=qkv)
    lse = guards.result("lse", lse, (B, heads, T), float32, like=qkv)
    if y.size == 0:
        return y, lse
    qkv = guards.contiguous(qkv)
    if chosen(qkv, heads) == "cudnn":
        attention_cudnn.forward(qkv, heads, y, lse)
        return y, lse
    passes = _passes(qkv.dtype, C // heads, guards.packs(C // heads, qkv, y))
    if passes is None:
        return NotImplemented
    passes[0].launch(B, heads, T, (qkv, y, lse, heads, T, _scale(C, heads)))
    return y, lse


def backward(
    dy: Array, qkv: Array, y: Array, lse: Array, heads: int, *, dqkv: Array | None = None
) -> Array:
    B, T, C = y.shape
    dqkv = guards.result("dqkv", dqkv, qkv.shape, qkv.dtype, like=qkv)
    if dqkv.size == 0:
        return dqkv
    if guards.address(dqkv) == guards.address(qkv):
        raise ValueError("dqkv is qkv itself; q is still read after dq is written: give another buffer")
    dy, qkv, y, lse = map(guards.contiguous, (dy, qkv, y, lse))
    if chosen(qkv, heads) == "cudnn":
        attention_cudnn.backward(dy, qkv, y, lse, heads, dqkv)
        return dqkv
    passes = _passes(qkv.dtype, C // heads, guards.packs(C // heads, dy, qkv, y, dqkv))
    if passes is None:
        return NotImplemented
    _, query, key_value = passes
    # (lse, delta) of each query, which the first pass leaves for the second in whole tiles.
    padded = guards.ceil_divide(T, query.rows) * query.rows
    statistics = namespace(qkv).empty((B, heads, padded, 2), float32)
    sizes = heads, T, padded, _scale(C, heads)
    query.launch(B, heads, T, (dy, qkv, y, lse, dqkv, statistics, *sizes))
    key_value.launch(B, heads, T, (dy, qkv, statistics, dqkv, *sizes))
    return dqkv


def _scale(C: int, heads: int) -> float:
    return 1 / math.sqrt(C // heads)


@dataclass(frozen=True)
class _Pass:
    """One kernel: its instance, the rows that a block owns, its threads, and its bytes of shared memory."""

    file: str
    instance: str
    rows: int
    threads: int
    shared: int

    def launch(self, B: int, heads: int, T: int, args: tuple) -> None:
        blocks = B * heads * guards.ceil_divide(T, self.rows)
        if blocks >= 2**31 or T >= 2**30:
            raise ValueError(f"B={B}, H={heads}, T={T} is too much for one grid of blocks: split B")
        load(self.file).get_function(self.instance)((blocks,), (self.threads,), args, self.shared)


@functools.cache
def _passes(dtype: np.dtype, D: int, packed: bool) -> tuple[_Pass, _Pass, _Pass] | None:
    """Forward, backward over queries, backward over keys; None if no kernel of llmlab's takes such heads."""
    if dtype in (bfloat16, float16) and D <= 128 and packed:
        return _tensor_core_passes(cuda_type(dtype), D)
    if D <= 256:
        return _scalar_passes(cuda_type(dtype), D)
    return None


# Row tiles of a warp (M), warps, rows of the other side's tiles, and how many of these one step takes.
_TILES = {
    64: ((2, 4, 32), (1, 4, 64, 32), (1, 4, 64, 16)),
    128: ((1, 4, 64), (1, 4, 64, 16), (1, 4, 64, 16)),
}  # fmt: skip


def _tensor_core_passes(T: str, D: int) -> tuple[_Pass, _Pass, _Pass]:
    """The kernels of attention.cu. Their shared memory holds two stages of two tiles of padded rows."""
    tiles = _TILES[min(size for size in _TILES if size >= D)]
    row = 2 * (guards.ceil_divide(D, 16) * 16 + 8)

    def make(name: str, M: int, warps: int, columns: int, *chunk: int, extra: int = 0) -> _Pass:
        arguments = ", ".join(map(str, (T, D, M, warps, columns, *chunk)))
        shared = 4 * columns * row + extra
        return _Pass("attention", f"{name}<{arguments}>", 16 * M * warps, 32 * warps, shared)

    forward, query, key_value = tiles
    return (
        make("attention_forward", *forward),
        make("attention_backward_query", *query),
        make("attention_backward_key_value", *key_value, extra=2 * key_value[2] * 8),
    )


def _scalar_passes(T: str, D: int) -> tuple[_Pass, _Pass, _Pass]:
    """The kernels of attention_scalar.cu: 4 warps of 4 rows, tiles of 32 rows in shared memory."""
    row = 16 * (guards.ceil_divide(D, 4) | 1)
    exchange = 4 * 4 * 32 * 4

    def make(name: str, rows: int) -> _Pass:
        return _Pass("attention_scalar", f"{name}<{T}, {D}>", 16, 128, rows * row + exchange)

    return (
        make("attention_scalar_forward", 16 + 2 * 32),
        make("attention_scalar_backward_query", 2 * 16 + 2 * 32),
        make("attention_scalar_backward_key_value", 2 * 16 + 2 * 32),
    )
