"""An offset in one arena for every storage of a schedule, chosen before anything runs.

So a step allocates nothing: on a CPU no page is ever touched for the first time twice, on a GPU every
address is the same in every step and a step can be captured as a CUDA graph. Finding the smallest arena is
NP-hard (dynamic storage allocation); we place greedily and let whoever sticks out go first next time, and for
the stack-like lifetimes of forward and backward that meets the lower bound, the peak of the timeline.
"""

from __future__ import annotations

from collections.abc import Callable

from llmlab.checkpointing.timeline import Storage

__all__ = ["place"]

_ORDERS: tuple[Callable[[Storage], tuple[int, ...]], ...] = (
    lambda s: (s.start - s.end, -s.nbytes),  # who lives longest first
    lambda s: (-s.nbytes, s.start - s.end),  # the largest first
)
_REPAIRS = 64


def place(storages: list[Storage], at_least: int = 0) -> tuple[list[int], int]:
    """Offsets in bytes, in the order of `storages`, and the size of the arena that they need.

    No two storages that are alive at the same time overlap. `at_least` is a size that can't be beaten: the
    search stops when it is met.

    >>> place([Storage(0, 256, 0, 1), Storage(1, 512, 1, 2), Storage(2, 256, 2, 3)])
    ([512, 0, 512], 768)
    """
    best, smallest = [0] * len(storages), -1
    for order in _ORDERS:
        queue = sorted(storages, key=order)
        for _ in range(_REPAIRS):
            offsets = _place_in_order(queue)
            highest = max(storages, key=lambda s: offsets[s.number] + s.nbytes, default=None)
            size = offsets[highest.number] + highest.nbytes if highest else 0
            if smallest < 0 or size < smallest:
                best, smallest = [offsets[s.number] for s in storages], size
            if smallest <= at_least or highest is queue[0]:
                break
            queue.remove(highest)  # whoever sticks out goes first next time
            queue.insert(0, highest)
        if smallest <= at_least:
            break
    return best, smallest


def _place_in_order(ordered: list[Storage]) -> dict[int, int]:
    """Each storage at the lowest offset at which it meets nobody placed before it."""
    offsets: dict[int, int] = {}
    placed: list[Storage] = []
    for storage in ordered:
        neighbours = sorted(
            (offsets[s.number], s.nbytes) for s in placed if s.start <= storage.end and storage.start <= s.end
        )
        at = 0
        for start, nbytes in neighbours:
            if at + storage.nbytes <= start:
                break
            at = max(at, start + nbytes)
        offsets[storage.number] = at
        placed.append(storage)
    return offsets
