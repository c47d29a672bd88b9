"""Launches attention for ``llmlab.ops.attention``: one of llmlab's own three kernels, or cuDNN's.

wgmma    ``attention_hopper.cu``: tensor cores of compute capability 9.0 (H100, H200)
mma      ``attention.cu``: tensor cores from compute capability 8.0 on
scalar   ``attention_scalar.cu``: float32, arrays that start anywhere, head sizes up to 256
cudnn    cuDNN, through the optional package nvidia-cudnn-frontend

All give the same bits in every run, and keep the same two things for backward, y and lse, so that forward and
backward need not be of one kind.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from llmlab.arrays import Array, bfloat16, float16, float32, is_cupy, namespace
from llmlab.kernels import attention_cudnn, guards
from llmlab.kernels.loader import load
from llmlab.kernels.signature import cuda_type

OWN = ("wgmma", "mma", "scalar")
IMPLEMENTATIONS = ("auto", "own", *OWN, "cudnn")

_setting = "auto"


def use(implementation: str) -> None:
    """Choose what computes attention from now on.

    Args:
        implementation: ``"wgmma"``, ``"mma"``, ``"scalar"`` or ``"cudnn"``; ``"own"``: the first of llmlab's
            three that takes the arrays; ``"auto"``: cuDNN where it is installed and was faster when measured
            (see `benchmarks/attention.py`), else ``"own"``.

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
    """The name of what computes attention over these arrays, for the log; ``"text"`` if it is the NumPy text.

    >>> import numpy as np
    >>> chosen(np.zeros((1, 4, 12), np.float32), heads=1)
    'scalar'
    """
    return _choose(qkv, heads, guards.packs(qkv.shape[2] // 3 // heads, qkv))


def forward(
    qkv: Array, heads: int, *, y: Array | None = None, lse: Array | None = None
) -> tuple[Array, Array]:
    """Launches one kernel of the implementation that `chosen` names; returns y and lse, in float32.

    NotImplemented where only the text can do it. ValueError if the setting names what cannot.
    """
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    y = guards.result("y", y, (B, T, C), qkv.dtype, like=qkv)
    lse = guards.result("lse", lse, (B, heads, T), float32, like=qkv)
    if y.size == 0:
        return y, lse
    qkv = guards.contiguous(qkv)
    name = _choose(qkv, heads, guards.packs(C // heads, qkv, y))
    if name == "text":
        return NotImplemented
    if name == "cudnn":
        attention_cudnn.forward(qkv, heads, y, lse)
    else:
        attend, _, _ = _passes(name, cuda_type(qkv.dtype), C // heads)
        attend.launch(B, heads, T, (qkv, y, lse, heads, T, 1 / math.sqrt(C // heads)))
    return y, lse


def backward(
    dy: Array, qkv: Array, y: Array, lse: Array, heads: int, *, dqkv: Array | None = None
) -> Array:
    """Launches two passes: dq, with what the second needs of each query; then dk and dv. Returns dqkv.

    dqkv is another buffer than qkv, which both passes read. y and lse are from any implementation.
    """
    B, T, C = y.shape
    dqkv = guards.result("dqkv", dqkv, qkv.shape, qkv.dtype, like=qkv)
    if dqkv.size == 0:
        return dqkv
    if guards.address(dqkv) == guards.address(qkv):
        raise ValueError("dqkv is qkv itself; q is still read after dq is written: give another buffer")
    dy, qkv, y, lse = map(guards.contiguous, (dy, qkv, y, lse))
    name = _choose(qkv, heads, guards.packs(C // heads, dy, qkv, y, dqkv))
    if name == "text":
        return NotImplemented
    if name == "cudnn":
        attention_cudnn.backward(dy, qkv, y, lse, heads, dqkv)
        return dqkv
    _, query, key_value = _passes(name, cuda_type(qkv.dtype), C // heads)
    # lse and delta of each query, which the first pass leaves for the second, in whole blocks.
    padded = guards.ceil_divide(T, query.rows) * query.rows
    statistics = namespace(qkv).empty((B, heads, padded, 2), float32)
    sizes = heads, T, padded, 1 / math.sqrt(C // heads)
    query.launch(B, heads, T, (dy, qkv, y, lse, dqkv, statistics, *sizes))
    key_value.launch(B, heads, T, (dy, qkv, statistics, dqkv, *sizes))
    return dqkv


def _choose(qkv: Array, heads: int, packed: bool) -> str:
    """The setting made definite; ValueError if it names something that cannot do it."""
    D = qkv.shape[2] // 3 // heads
    if _setting in (*OWN, "cudnn"):
        obstacle = _obstacle(_setting, qkv, heads, packed)
        if obstacle:
            raise ValueError(f'attention by "{_setting}": {obstacle}; use("auto") chooses what can')
        return _setting
    own = next((name for name in OWN if _obstacle(name, qkv, heads, packed) is None), "text")
    if _setting == "own" or (own == "wgmma" and D <= 64) or _obstacle("cudnn", qkv, heads, packed):
        return own
    return "cudnn"


def _obstacle(name: str, qkv: Array, heads: int, packed: bool) -> str | None:
    """Why this implementation cannot attend over such arrays, or None if it can."""
    D = qkv.shape[2] // 3 // heads
    if name == "scalar":
        return f"the head size is {D}; it takes up to 256" if D > 256 else None
    if qkv.dtype not in (bfloat16, float16):
        return f"qkv is {qkv.dtype}; it takes bfloat16 and float16"
    if D > 128 or not packed:
        return f"heads of {D} numbers, or arrays off 16-byte boundaries: it takes multiples of 8 up to 128"
    if name == "cudnn":
        return attention_cudnn.obstacle(qkv, heads)
    capability = _capability(qkv.device.id) if is_cupy(qkv) else None
    if capability and (capability != 90 if name == "wgmma" else capability < 80):
        return f"the GPU has compute capability {capability / 10}"
    return None


@functools.cache
def _capability(device: int) -> int:
    """Compute capability times ten."""
    import cupy

    return int(cupy.cuda.Device(device).compute_capability)


@dataclass(frozen=True)
class _Pass:
    """One kernel: its file and instance, a block's rows, its threads, and its bytes of shared memory."""

    file: str
    options: tuple[str, ...]
    instance: str
    rows: int
    threads: int
    shared: int

    def launch(self, B: int, heads: int, T: int, args: tuple) -> None:
        blocks = B * heads * guards.ceil_divide(T, self.rows)
        if blocks >= 2**31 or T >= 2**30:
            raise ValueError(f"B={B}, H={heads}, T={T} is too much for one grid of blocks: split B")
        kernel = load(self.file, self.options).get_function(self.instance)
        kernel((blocks,), (self.threads,), args, self.shared)


@functools.cache
def _passes(name: str, dtype: str, D: int) -> tuple[_Pass, _Pass, _Pass]:
    """Forward, backward over queries, and backward over keys, for heads of D numbers of a CUDA type."""
    if name == "scalar":
        return _scalar_passes(dtype, D)
    if name == "wgmma":
        file, options = "attention_hopper", ("--gpu-architecture=sm_90a",)
        row = guards.ceil_divide(D, 64) * 64
    else:
        file, options = "attention", ()
        row = guards.ceil_divide(D, 16) * 16 + 8
    tiles = _TILES[name][min(size for size in _TILES[name] if size >= D)]

    def make(kernel: str, M: int, warps: int, columns: int, *rest: int) -> _Pass:
        instance = f"{kernel}<{', '.join(map(str, (dtype, D, M, warps, columns, *rest)))}>"
        rows = 16 * M * warps
        shared = 2 * 2 * columns * row * 2  # two stages of two tiles of 16-bit numbers
        if kernel == "attention_backward_key_value":
            shared += 2 * columns * 2 * 4  # two stages of two statistics
            shared += 2 * rows * row * 2 if name == "wgmma" else 0  # the block's own keys and values
        return _Pass(file, options, instance, rows, 32 * warps, shared)

    forward, query, key_value = tiles
    return (
        make("attention_forward", *forward),
        make("attention_backward_query", *query),
        make("attention_backward_key_value", *key_value),
    )


# By head size: row tiles of a warp (M), warps, rows of the other side's tiles, in backward how many of these
# one step takes, and blocks on a multiprocessor. The fastest of those tried on an H200.
_TILES = {
    "wgmma": {
        64: ((1, 4, 64, 4), (1, 4, 64, 64, 3), (1, 4, 64, 32, 3)),
        80: ((1, 4, 64, 3), (1, 4, 64, 32, 3), (1, 4, 64, 32, 2)),
        96: ((1, 4, 64, 3), (1, 4, 64, 32, 2), (1, 4, 64, 32, 2)),
        128: ((1, 4, 64, 2), (1, 4, 64, 32, 2), (1, 4, 64, 32, 2)),
    },
    "mma": {
        64: ((2, 4, 64, 1), (1, 4, 64, 32, 3), (1, 4, 64, 16, 3)),
        128: ((1, 4, 64, 1), (1, 4, 64, 32, 1), (1, 4, 64, 16, 1)),
    },
}


def _scalar_passes(dtype: str, D: int) -> tuple[_Pass, _Pass, _Pass]:
    """4 warps of 4 rows each, and tiles of 32 rows in float32, each an odd number of 16-byte pieces long."""
    row = 16 * (guards.ceil_divide(D, 4) | 1)
    exchange = 4 * 4 * 32 * 4

    def make(kernel: str, rows: int) -> _Pass:
        return _Pass("attention_scalar", (), f"{kernel}<{dtype}, {D}>", 16, 128, rows * row + exchange)

    return (
        make("attention_scalar_forward", 16 + 2 * 32),
        make("attention_scalar_backward_query", 2 * 16 + 2 * 32),
        make("attention_scalar_backward_key_value", 2 * 16 + 2 * 32),
    )
