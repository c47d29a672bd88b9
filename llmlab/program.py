"""A schedule bound to memory: for every action a call that is ready to be made.

All names, offsets, shapes and attributes are resolved here, once. Running a step is then a loop over calls.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from llmlab.checkpointing import timeline
from llmlab.checkpointing.placement import place
from llmlab.checkpointing.schedule import Action, Kind, Schedule
from llmlab.graph import Function, Graph, Node, gradient_name
from llmlab.ops import residual

__all__ = ["Call", "Plan", "bind"]


@dataclass(frozen=True)
class Call:
    """What one action of a schedule comes to: `make()` runs it."""

    action: Action
    node: Node
    make: functools.partial

    def unchecked(self) -> Call:
        """The same call past the guard at the op's door, which has nothing new to say about the same arrays."""
        inner = getattr(self.make.func, "__wrapped__", self.make.func)
        return replace(self, make=functools.partial(inner, *self.make.args, **self.make.keywords))


class Plan:
    """A schedule with an offset in the arena for each of its storages, at the graph's largest sizes.

    `peak` is what the timeline predicts, `arena_bytes` what the placement needs: in the best case the same.
    """

    def __init__(self, schedule: Schedule, graph: Graph, compute: np.dtype) -> None:
        self.schedule, self.graph, self.compute = schedule, graph, compute
        self.peak = timeline.peak(schedule, graph, compute)
        self.offsets, self.arena_bytes = place(timeline.storages(schedule, graph, compute), self.peak)


def bind(plan: Plan, arena: Any, sizes: Mapping[str, int], external: Mapping[str, Any],
         gradients: Mapping[str, Any], row: int = 0) -> tuple[list[Call], dict[str, Any]]:
    """The calls of a plan at `sizes`, none larger than the graph's, and the tensors that are alive at their
    end.

    `external` holds inputs, parameters and the gradient of the loss by name, `gradients` those of
    parameters, into which backward adds. `row` is the place of the batch's first row in the whole batch,
    for ops that count places.
    """
    graph = plan.graph
    nodes = {node.name: node for node in graph.nodes}
    calls = []

    def view(name: str, storage: timeline.Storage) -> Any:
        shape, dtype = graph.shape(name, sizes), graph.dtype(name, plan.compute)
        start = plan.offsets[storage.number]
        return arena[start:start + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    held: dict[str, timeline.Storage] = {}
    for action, held in timeline.replay(plan.schedule, graph, plan.compute):
        if action.kind is Kind.FREE:
            continue
        node = nodes[action.name]
        function = node.function(action.function)
        reads = {name: view(t, held[t]) if t in held else external[t] for name, t in action.reads.items()}
        results = {name: view(t, held[t]) for name, t in action.writes.items()}
        for new, old in action.over.items():  # equal arrays, so that an op sees that they are one
            _identify(new, old, action, reads, results)
        for name in function.makes:
            if name[1:] in node.arguments and node.arguments[name[1:]] in gradients:
                results[name] = gradients[node.arguments[name[1:]]]
        attributes = node.attributes_of(function)
        if "offset" in function.reads:
            first = next(iter(reads.values()))
            attributes["offset"] = row * math.prod(first.shape[1:])
        known = {**function.defaults, **attributes, **_outside(node, function, external), **reads}
        arguments = [known.get(name) for name in function.reads]
        calls.append(Call(action, node, functools.partial(function.call, *arguments, **results)))
        for part, whole in action.adds:
            total = view(whole, held[whole])
            add = functools.partial(residual.forward, total, view(part, held[part]), y=total)
            calls.append(Call(action, node, add))
    return calls, {name: view(name, storage) for name, storage in held.items()}


def _outside(node: Node, function: Function, external: Mapping[str, Any]) -> dict[str, Any]:
    """What a function reads of the gradient of the loss, which no node makes."""
    resolved = {name: node.resolve(name) for name in function.reads}
    return {name: external[tensor] for name, tensor in resolved.items() if tensor in external}


def _identify(new: str, old: str, action: Action, reads: dict[str, Any], results: dict[str, Any]) -> None:
    """Let a result be the very array whose memory it moves into."""
    mine = next(name for name, tensor in action.writes.items() if tensor == new)
    for names, values in ((action.reads, reads), (action.writes, results)):
        for name, tensor in names.items():
            if tensor == old:
                results[mine] = values[name]


def loss_gradient(graph: Graph) -> str:
    """The name of the gradient of the loss by itself, the one gradient that comes from outside."""
    return gradient_name(graph.nodes[-1].results["loss"])
