"""The memory of a schedule over time, to the byte, without running it.

A storage is a piece of memory from the moment a tensor is written into it until the last tensor in it is
let go; results written in place move in with their predecessors. The bytes held while an action runs are
the sum over the storages alive, and the largest such sum is the peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from llmlab.checkpointing.schedule import Action, Kind, Schedule
from llmlab.graph import Graph

__all__ = ["Storage", "bytes_held", "peak", "replay", "storages"]


@dataclass
class Storage:
    """A piece of memory: its size in bytes, and the first and last action that need it."""

    number: int
    nbytes: int
    start: int
    end: int


def replay(
    schedule: Schedule, graph: Graph, compute: np.dtype,
) -> Iterator[tuple[Action, dict[str, Storage]]]:
    """Every action, and where each tensor that is alive while it runs is stored.

    The dictionary is the same object all along, changed from action to action; storages are numbered in the
    order in which they begin, so two replays of one schedule agree.
    """
    held: dict[str, Storage] = {}
    number = 0
    for index, action in enumerate(schedule):
        if action.kind is Kind.FREE:
            yield action, held
            held.pop(action.name)
            continue
        for name in action.writes.values():
            if name in action.over:
                continue
            if name not in held:
                held[name] = Storage(number, graph.nbytes(name, compute), index, len(schedule))
                number += 1
        for new, old in action.over.items():
            held[new] = held[old]
        yield action, held


def storages(schedule: Schedule, graph: Graph, compute: np.dtype) -> list[Storage]:
    """All storages of a schedule in the order in which they begin, with their ends."""
    found: dict[int, Storage] = {}
    for index, (action, held) in enumerate(replay(schedule, graph, compute)):
        if action.kind is not Kind.FREE:
            for storage in held.values():
                found[storage.number] = storage
                storage.end = index
    return [found[number] for number in sorted(found)]


def bytes_held(schedule: Schedule, graph: Graph, compute: np.dtype) -> list[int]:
    """For every action, the bytes of all tensors alive while it runs."""
    held_at = [0] * len(schedule)
    for index, (_, held) in enumerate(replay(schedule, graph, compute)):
        held_at[index] = sum({s.number: s.nbytes for s in held.values()}.values())
    return held_at


def peak(schedule: Schedule, graph: Graph, compute: np.dtype) -> int:
    """The most bytes that are held at once.

    >>> from llmlab.ops import gelu
    >>> from llmlab.checkpointing.schedule import inference
    >>> graph = Graph({"N": 64})
    >>> x = graph.input("x", ("N", 64), role="compute")
    >>> a = graph.add("a", gelu, {"x": x}, y=("N", 64))
    >>> b = graph.add("b", gelu, {"x": a}, y=("N", 64))
    >>> peak(inference(graph, [b]), graph, np.dtype("float32"))  # b is written over a
    16384
    """
    return max(bytes_held(schedule, graph, compute), default=0)
