"""Launches ``embedding.cu`` for ``llmlab.ops.embedding``, whose door has checked shapes and dtypes."""

from __future__ import annotations

import numpy as np

from llmlab.arrays import Array, float32, namespace
from llmlab.kernels import guards, row
from llmlab.kernels.layernorm import gradient
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, cuda_type

_CHUNK, _AHEAD = 32, 4  # as in embedding.cu


def forward(tokens: Array, wte: Array, wpe: Array, *, x: Array | None = None) -> Array:
    """Launches ``embedding_forward``, tokens of any integer dtype; returns x."""
    x = guards.result("x", x, (*tokens.shape, wte.shape[1]), wte.dtype, like=wte)
    if x.size == 0:
        return x
    tokens, wte, wpe = _whole(tokens), guards.contiguous(wte), guards.contiguous(wpe)
    V, C = wte.shape
    E = row.pack_size(C, x, wte, wpe)
    threads = min(256, guards.ceil_divide(C, E * row.WARP) * row.WARP)
    kernel = load("embedding").get_function(
        f"embedding_forward<{cuda_type(wte.dtype)}, {cuda_type(tokens.dtype)}, {E}>"
    )
    blocks = guards.ceil_divide(tokens.size, _AHEAD)
    kernel((blocks,), (threads,), (Out(x), tokens, wte, wpe, tokens.size, tokens.shape[1], V, C))
    return x


def backward(
    dx: Array,
    tokens: Array,
    wte: Array,
    wpe: Array,
    *,
    dwte: Array | None = None,
    dwpe: Array | None = None,
) -> tuple[Array, Array]:
    """Launches the sums over positions, the counting sort of the tokens, and the sums over its runs.

    Adds to dwte and dwpe, float32 and contiguous, or to zeros, and returns them. At most 2³¹ - 1 tokens.
    """
    dwte, dwpe = gradient(dwte, wte), gradient(dwpe, wpe)
    if dx.size == 0:
        return dwte, dwpe
    dx, tokens = guards.contiguous(dx), _whole(tokens)
    B, T, C = dx.shape
    E, dtype = row.pack_size(C, dx, dwte, dwpe), cuda_type(dx.dtype)
    positions = load("embedding").get_function(f"sum_positions<{dtype}, {E}>")
    positions((guards.ceil_divide(T * C, 256 * E),), (256,), (dwpe, dx, B, T, C))
    _add_tokens(dwte, dx, tokens, E, dtype)
    return dwte, dwpe


def _add_tokens(dwte: Array, dx: Array, tokens: Array, E: int, dtype: str) -> None:
    xp, kernels, (V, C), places = namespace(dx), load("embedding"), dwte.shape, tokens.size
    keys = _sorted_places(tokens, V)
    chunks = guards.ceil_divide(places, _CHUNK)
    spanning = xp.empty(
        (2, chunks, C), float32
    )  # sums of runs that come from the chunk before, and that go on in the next
    threads = min(128, guards.ceil_divide(C, E * row.WARP) * row.WARP)
    grid = chunks, guards.ceil_divide(C, threads * E)
    sum_runs = kernels.get_function(f"sum_runs<{dtype}, {E}>")
    sum_runs(grid, (threads,), (dwte, *spanning, dx, keys, places, V, C))
    finish = kernels.get_function(f"sum_spanning_runs<{E}>")
    finish(grid, (threads,), (dwte, *spanning, keys, places, V, C))


def _sorted_places(tokens: Array, V: int) -> Array:
    """Token and place of each place as one number, in the order of tokens, then of places."""
    xp, kernels, places, I = namespace(tokens), load("embedding"), tokens.size, cuda_type(tokens.dtype)
    if places >= 2**31:
        raise ValueError(
            f"tokens has {places} elements; backward takes at most 2³¹ - 1 at once: split the batch"
        )
    counts, starts = xp.zeros(V + 1, np.int32), xp.empty(V + 1, np.int32)
    arrivals, gathered, keys = (
        xp.empty(places, np.int32),
        xp.empty(places, np.int32),
        xp.empty(places, np.int64),
    )
    grid, block = (guards.ceil_divide(places, 256),), (256,)
    kernels.get_function(f"count_tokens<{I}>")(grid, block, (counts, Out(arrivals), tokens, places, V))
    tables = (guards.ceil_divide(V + 1, 1024),)
    kernels.get_function("sum_counts")(tables, (1024,), (Out(starts), counts, V + 1))
    kernels.get_function(f"gather_places<{I}>")(
        grid, block, (Out(gathered), starts, arrivals, tokens, places, V)
    )
    warps = (guards.ceil_divide(places * row.WARP, 256),)
    kernels.get_function(f"order_places<{I}>")(
        warps, block, (Out(keys), gathered, starts, counts, tokens, places, V)
    )
    return keys


def _whole(tokens: Array) -> Array:
    """Tokens as contiguous int32 or int64."""
    if tokens.dtype not in (np.int32, np.int64):
        tokens = tokens.astype(np.int64)
    return guards.contiguous(tokens)
