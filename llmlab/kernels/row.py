"""How rows are dealt out to threads: the host's side of ``row.cuh``."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from llmlab.arrays import Array, is_cupy
from llmlab.kernels import guards

WARP = 32
MOST_WARPS = 16  # of a team: with 512 threads a block, each may have 128 registers


@dataclass(frozen=True)
class Plan:
    """A team of W warps takes a row; each of its threads K packs of E elements."""

    E: int
    K: int
    W: int

    @property
    def threads(self) -> int:
        return WARP * self.W

    def shared_bytes(self, itemsize: int) -> int:
        """What a row takes in shared memory: a place for each pack, of a word at least."""
        return self.K * self.threads * max(4, self.E * itemsize)


def pack_size(C: int, *arrays: Array | None) -> int:
    """How many elements one access can move in all the arrays (None aside), whose rows have C elements.

    As many as make 16 bytes, if every row starts and ends at a multiple of that; else the next power of two.
    """
    given = [array for array in arrays if array is not None]
    size = guards.PACK_BYTES // given[0].itemsize
    while size > 1 and (C % size or any(guards.address(a) % (size * a.itemsize) for a in given)):
        size //= 2
    return size


@functools.cache
def plan(C: int, E: int, itemsize: int, most_words: int, most_elements: int) -> Plan | None:
    """The team for rows of C elements in packs of E, or None if such a row does not fit into registers.

    A thread holds at most that many words of a row, and elements. What a warp does for each pack is shared
    out among warps; what it does once a row (the reductions, about half a pack's worth) each does: so
    W (2 K + 1) is the cost.
    """
    most_packs = min(most_words // max(1, E * itemsize // 4), most_elements // E)
    needed = guards.ceil_divide(C, E * WARP)  # packs of a whole warp
    plans = [Plan(E, guards.ceil_divide(needed, W), W) for W in range(1, MOST_WARPS + 1)]
    return min((p for p in plans if most_packs >= p.K), key=lambda p: p.W * (2 * p.K + 1), default=None)


def shared_limit(array: Array, blocks: int = 1) -> int:
    """Bytes of shared memory that a block may have if ``blocks`` share a multiprocessor of the array's GPU.

    When emulated, an H200's. The driver keeps 1 KiB for itself in each block.
    """
    of_one = _shared_limit(array.device.id) if is_cupy(array) else 227 * 1024
    return (of_one + 1024) // blocks - 1024


@functools.cache
def _shared_limit(device: int) -> int:
    import cupy

    return cupy.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"]
