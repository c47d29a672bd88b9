"""Launches ``cross_entropy.cu`` for ``llmlab.ops.cross_entropy``, whose doors have checked the arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmlab.arrays import Array, float32, is_cupy, namespace
from llmlab.kernels import guards, row
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, cuda_type, null

_THREADS, _RESIDENT_THREADS = 1024, 512
_STATIC_SHARED = 2048  # bytes a block takes besides its row, the driver's included
_REDUCE_THREADS = 1024


def forward(
    logits: Array,
    targets: Array,
    ignore_index: int = -100,
    vocabulary: int | None = None,
    reduction: str = "mean",
    *,
    loss: Array | None = None,
    lse: Array | None = None,
) -> tuple[Array, Array]:
    lse = guards.result("lse", lse, targets.shape, float32, like=logits)
    loss, losses = _losses(loss, targets, reduction, logits)
    logits, targets = guards.contiguous(logits), _whole(targets)
    V = logits.shape[-1]
    count = _count(targets, ignore_index, reduction)
    if targets.size:
        kernel = _kernel("cross_entropy_forward", logits, targets, guards.packs(V, logits))
        kernel(
            (targets.size,),
            (_threads(logits),),
            (Out(losses), Out(lse), logits, targets, ignore_index, vocabulary or V, V),
        )
    _reduce(loss, losses, count, reduction)
    return loss, lse


def backward(
    dloss: Array | float,
    logits: Array,
    targets: Array,
    lse: Array,
    ignore_index: int = -100,
    vocabulary: int | None = None,
    reduction: str = "mean",
    *,
    dlogits: Array | None = None,
) -> Array:
    dlogits = guards.result("dlogits", dlogits, logits.shape, logits.dtype, like=logits)
    if targets.size == 0:
        return dlogits
    logits, lse, targets = guards.contiguous(logits), guards.contiguous(lse), _whole(targets)
    V = logits.shape[-1]
    count = _count(targets, ignore_index, reduction)
    kernel = _kernel("cross_entropy_backward", logits, targets, guards.packs(V, logits, dlogits))
    weights = _weights(dloss, targets, reduction)
    kernel(
        (targets.size,),
        (_threads(logits),),
        (
            Out(dlogits),
            logits,
            targets,
            lse,
            *weights,
            null if count is None else count,
            ignore_index,
            vocabulary or V,
            V,
        ),
    )
    return dlogits


def forward_backward(
    logits: Array,
    targets: Array,
    dloss: Array | float = 1.0,
    ignore_index: int = -100,
    vocabulary: int | None = None,
    reduction: str = "mean",
    *,
    loss: Array | None = None,
    dlogits: Array | None = None,
) -> tuple[Array, Array]:
    dlogits = guards.result("dlogits", dlogits, logits.shape, logits.dtype, like=logits)
    loss, losses = _losses(loss, targets, reduction, logits)
    logits, targets = guards.contiguous(logits), _whole(targets)
    V, N = logits.shape[-1], targets.size
    count = _count(targets, ignore_index, reduction)
    if N:
        aligned = guards.packs(V, logits, dlogits)
        args = (
            Out(losses),
            Out(dlogits),
            logits,
            targets,
            *_weights(dloss, targets, reduction),
            null if count is None else count,
            ignore_index,
            vocabulary or V,
            V,
        )
        row_bytes = V * logits.itemsize
        if aligned and row_bytes + _STATIC_SHARED <= row.shared_limit(logits, blocks=2):
            threads = min(_RESIDENT_THREADS, _threads(logits))
            resident = min(2048 // threads, row.shared_limit(logits) // (row_bytes + _STATIC_SHARED))
            kernel = load("cross_entropy").get_function(
                f"resident_forward_backward<{cuda_type(logits.dtype)}, {cuda_type(targets.dtype)}>"
            )
            blocks = min(N, resident * guards.multiprocessors(logits))
            kernel((blocks,), (threads,), (*args, N), shared_mem=row_bytes)
        else:
            kernel = _kernel("cross_entropy_forward_backward", logits, targets, aligned)
            kernel((N,), (_threads(logits),), args)
    _reduce(loss, losses, count, reduction)
    return loss, dlogits


def _kernel(name: str, logits: Array, targets: Array, aligned: bool) -> Any:
    instance = (
        f"{name}<{cuda_type(logits.dtype)}, {cuda_type(targets.dtype)}, {'true' if aligned else 'false'}>"
    )
    return load("cross_entropy").get_function(instance)


def _threads(logits: Array) -> int:
    """Of a block: a pack to each, in whole warps, up to 1024."""
    packs = guards.ceil_divide(logits.shape[-1] * logits.itemsize, guards.PACK_BYTES)
    return min(_THREADS, guards.ceil_divide(packs, row.WARP) * row.WARP)


def _whole(targets: Array) -> Array:
    """Targets as contiguous int32 or int64."""
    if targets.dtype not in (np.int32, np.int64):
        targets = targets.astype(np.int64)
    return guards.contiguous(targets)


def _losses(loss: Array | None, targets: Array, reduction: str, like: Array) -> tuple[Array, Array]:
    """The result, and where the losses of the rows go: the result itself without a reduction."""
    loss = guards.result("loss", loss, targets.shape if reduction == "none" else (), float32, like=like)
    return loss, loss if reduction == "none" else namespace(like).empty(targets.shape, float32)


def _count(targets: Array, ignore_index: int, reduction: str) -> Array | None:
    """The number of valid rows, on the device; None if no mean is taken."""
    if reduction != "mean":
        return None
    count = namespace(targets).empty(1, np.int64)
    kernel = load("cross_entropy").get_function(f"count_valid<{cuda_type(targets.dtype)}>")
    kernel((1,), (_REDUCE_THREADS,), (Out(count), targets, ignore_index, targets.size))
    return count


def _reduce(loss: Array, losses: Array, count: Array | None, reduction: str) -> None:
    if reduction == "none":
        return
    kernel = load("cross_entropy").get_function("reduce_losses")
    kernel((1,), (_REDUCE_THREADS,), (Out(loss), losses, null if count is None else count, losses.size))


def _weights(dloss: Array | float, targets: Array, reduction: str) -> tuple[Any, int, float]:
    """dloss as the kernels take it: (pointer or null, stride, value)."""
    if isinstance(dloss, np.generic | int | float):
        return null, 0, float(dloss)
    if is_cupy(targets) and not is_cupy(dloss):
        dloss = namespace(targets).asarray(dloss)
    if reduction == "none" and dloss.size != 1 and dloss.shape != targets.shape:
        raise ValueError(
            f"dloss has shape {dloss.shape}; it needs to be one number or {targets.shape} like targets"
        )
    if reduction != "none" and dloss.size != 1:
        raise ValueError(
            f"dloss has shape {dloss.shape}; with reduction {reduction!r} it needs to be one number"
        )
    return guards.contiguous(namespace(dloss).asarray(dloss, float32)), int(dloss.size != 1), 0.0
