"""A schedule bound to memory: for every action a call that is ready to be made.

All names, offsets, shapes and attributes are resolved here, once. Running a step is then a loop over calls;
on a GPU, where all addresses stay the same from step to step, it becomes the launch of one CUDA graph.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from llmlab.checkpointing import timeline
from llmlab.checkpointing.placement import place
from llmlab.checkpointing.schedule import Action, Kind, Schedule
from llmlab.graph import Graph, Node, gradient_name
from llmlab.op_interface import Function
from llmlab.ops import residual

__all__ = ["Call", "Plan", "Program", "bind"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """What one action of a schedule comes to: `make()` runs it."""

    action: Action
    node: Node
    make: functools.partial

    def unchecked(self) -> Call:
        """The same call past the guard at the op's door, which has no news about the same arrays."""
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


class Program:
    """Calls in order, and the tensors that are alive at their end.

    With `capture`, the second run is recorded as a CUDA graph, and later runs launch it: the first has
    compiled what there was to compile, and a launch costs the host as much as a single kernel. Where CUDA
    refuses, a line in the log says why, and runs go on call by call.
    """

    def __init__(self, calls: list[Call], outputs: dict[str, Any], capture: bool = False) -> None:
        self.calls, self.outputs = calls, outputs
        self.capture, self.runs = capture, 0
        self.graph: _Graph | None = None

    def run(self, observer: Callable | None = None) -> None:
        """Make all calls; `observer(action, node)` is called before and after each, outside of graphs."""
        if observer is not None:
            for call in self.calls:
                observer(call.action, call.node)
                call.make()
                observer(call.action, call.node)
            return
        if self.runs == 1 and self.capture:
            self._record()
        if self.graph is not None:
            self.graph.launch()
        else:
            for call in self.calls:
                call.make()
        if self.runs == 0:
            self.calls = [call.unchecked() for call in self.calls]
        self.runs += 1

    @property
    def nbytes(self) -> int:
        """Bytes that the graph's temporaries hold, beside the arena."""
        return self.graph.pool.total_bytes() if self.graph else 0

    def _record(self) -> None:
        try:
            self.graph = _Graph(self.calls)
        except Exception as error:  # whatever a library does that can't be recorded, it can still be run
            _log.warning("no CUDA graph of this step, calls are made one by one: %s", error)
            self.capture = False


class _Graph:
    """Calls recorded as a CUDA graph, and the memory that their temporaries had while recording."""

    def __init__(self, calls: list[Call]) -> None:
        import cupy

        self.pool = cupy.cuda.MemoryPool()
        stream = cupy.cuda.Stream(non_blocking=True)
        with cupy.cuda.using_allocator(self.pool.malloc), stream:
            stream.begin_capture()
            try:
                for call in calls:
                    call.make()
            except BaseException:
                with suppress(Exception):  # a broken recording ends with an error of its own
                    stream.end_capture()
                raise
            self.graph = stream.end_capture()

    def launch(self) -> None:
        self.graph.launch()  # on CuPy's current stream


def bind(plan: Plan, arena: Any, sizes: Mapping[str, int], external: Mapping[str, Any],
         gradients: Mapping[str, Any], row: int = 0, capture: bool = False) -> Program:
    """The program of a plan at `sizes`, none larger than the graph's.

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
    return Program(calls, {name: view(name, storage) for name, storage in held.items()}, capture)


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
