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

Weights = tuple[Any, int, float]
"""dloss as the kernels take it: array or null, its stride by rows (0: one number for all), value if null."""


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
    """loss and lse in one pass over logits (..., V); loss () or (...,) and lse (...,) in float32."""
    lse = guards.result("lse", lse, targets.shape, float32, like=logits)
    loss, losses = losses_buffer(loss, targets, reduction, logits)
    targets = whole(targets)
    count = count_valid(targets, ignore_index, reduction)
    forward_rows(losses, lse, guards.contiguous(logits), targets, ignore_index, vocabulary)
    reduce(loss, losses, count, reduction)
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
    """dlogits like logits (..., V), given lse (...,) in float32; `dlogits` may be `logits`."""
    dlogits = guards.result("dlogits", dlogits, logits.shape, logits.dtype, like=logits)
    if targets.size == 0:
        return dlogits
    logits, lse, targets = guards.contiguous(logits), guards.contiguous(lse), whole(targets)
    V = logits.shape[-1]
    count = count_valid(targets, ignore_index, reduction)
    kernel = _kernel("cross_entropy_backward", logits, targets, guards.packs(V, logits, dlogits))
    w = weights(dloss, targets)
    kernel(
        (targets.size,),
        (_threads(logits),),
        (Out(dlogits), logits, targets, lse, *w, _or_null(count), ignore_index, vocabulary or V, V),
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
    """loss () or (...,) in float32 and dlogits like logits (..., V), which are read once if they fit into
    shared memory; `dlogits` may be `logits`."""
    dlogits = guards.result("dlogits", dlogits, logits.shape, logits.dtype, like=logits)
    loss, losses = losses_buffer(loss, targets, reduction, logits)
    targets = whole(targets)
    count = count_valid(targets, ignore_index, reduction)
    w = weights(dloss, targets)
    forward_backward_rows(
        losses, dlogits, guards.contiguous(logits), targets, w, count, ignore_index, vocabulary
    )
    reduce(loss, losses, count, reduction)
    return loss, dlogits


# Rows, be they all or a chunk of them. Arrays are contiguous, targets as `whole` returns them, and `count` is
# the number of all valid rows.


def forward_rows(
    losses: Array, lse: Array, logits: Array, targets: Array, ignore_index: int, vocabulary: int | None
) -> None:
    """Each row's loss and lse, in float32."""
    if not targets.size:
        return
    V = logits.shape[-1]
    kernel = _kernel("cross_entropy_forward", logits, targets, guards.packs(V, logits))
    args = Out(losses), Out(lse), logits, targets, ignore_index, vocabulary or V, V
    kernel((targets.size,), (_threads(logits),), args)


def forward_backward_rows(
    losses: Array,
    dlogits: Array,
    logits: Array,
    targets: Array,
    w: Weights,
    count: Array | None,
    ignore_index: int,
    vocabulary: int | None,
) -> None:
    """Each row's loss, in float32, and dlogits, divided by `count` unless that is None."""
    V, N = logits.shape[-1], targets.size
    if not N:
        return
    aligned = guards.packs(V, logits, dlogits)
    args = (
        Out(losses),
        Out(dlogits),
        logits,
        targets,
        *w,
        _or_null(count),
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


def _kernel(name: str, logits: Array, targets: Array, aligned: bool) -> Any:
    instance = (
        f"{name}<{cuda_type(logits.dtype)}, {cuda_type(targets.dtype)}, {'true' if aligned else 'false'}>"
    )
    return load("cross_entropy").get_function(instance)


def _threads(logits: Array) -> int:
    """Of a block: a pack to each, in whole warps, up to 1024."""
    packs = guards.ceil_divide(logits.shape[-1] * logits.itemsize, guards.PACK_BYTES)
    return min(_THREADS, guards.ceil_divide(packs, row.WARP) * row.WARP)


def _or_null(array: Array | None) -> Any:
    return null if array is None else array


def whole(targets: Array) -> Array:
    """Targets as contiguous int32 or int64."""
    if targets.dtype not in (np.int32, np.int64):
        targets = targets.astype(np.int64)
    return guards.contiguous(targets)


def losses_buffer(loss: Array | None, targets: Array, reduction: str, like: Array) -> tuple[Array, Array]:
    """The result, and where the losses of the rows go: the result itself without a reduction."""
    loss = guards.result("loss", loss, targets.shape if reduction == "none" else (), float32, like=like)
    return loss, loss if reduction == "none" else namespace(like).empty(targets.shape, float32)


def count_valid(targets: Array, ignore_index: int, reduction: str) -> Array | None:
    """The number of valid rows, on the device; None if no mean is taken."""
    if reduction != "mean":
        return None
    count = namespace(targets).empty(1, np.int64)
    kernel = load("cross_entropy").get_function(f"count_valid<{cuda_type(targets.dtype)}>")
    kernel((1,), (_REDUCE_THREADS,), (Out(count), targets, ignore_index, targets.size))
    return count


def reduce(loss: Array, losses: Array, count: Array | None, reduction: str) -> None:
    """loss = Σ losses, over `count` for a mean; losses are the result already if there is no reduction."""
    if reduction == "none":
        return
    kernel = load("cross_entropy").get_function("reduce_losses")
    kernel((1,), (_REDUCE_THREADS,), (Out(loss), losses, _or_null(count), losses.size))


def weights(dloss: Array | float, targets: Array) -> Weights:
    """dloss as the kernels take it."""
    if isinstance(dloss, np.generic | int | float):
        return null, 0, float(dloss)
    if is_cupy(targets) and not is_cupy(dloss):
        dloss = namespace(targets).asarray(dloss)
    return guards.contiguous(namespace(dloss).asarray(dloss, float32)), int(dloss.size != 1), 0.0
