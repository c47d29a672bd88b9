"""A training step as data: what is computed, what is computed again, and what is let go, in order.

    FORWARD n            run a node
    FORWARD_BACKWARD n   run the node of the loss both ways in one pass, where its op can
    RECOMPUTE n          make results of a node again that were let go
    BACKWARD n           make the gradients of a node's arguments
    FREE t               let a tensor go

The engine runs such a list, the timeline replays it with sizes, a planner compares several, a test counts it.
Nobody else decides what is alive when.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from llmlab.graph import Graph, Node, gradient_name
from llmlab.op_interface import Function

__all__ = ["Action", "Kind", "Schedule", "inference", "saved", "training"]


class Kind(StrEnum):
    """What an action does."""

    FORWARD = "FORWARD"
    FORWARD_BACKWARD = "FORWARD_BACKWARD"
    RECOMPUTE = "RECOMPUTE"
    BACKWARD = "BACKWARD"
    FREE = "FREE"


@dataclass(frozen=True)
class Action:
    """One step of a schedule. `name` is a node's, or a tensor's for FREE.

    `writes` maps names in the signature of the op's `function` to the tensors it makes. `over` says for
    some of them whose memory they move into: that of an argument which ends here, or of a result with equal
    content. `adds` lists pairs (part, whole): a second contribution to a gradient, to be added into the
    first.
    """

    kind: Kind
    name: str
    function: str = ""
    reads: dict[str, str] = field(default_factory=dict)
    writes: dict[str, str] = field(default_factory=dict)
    over: dict[str, str] = field(default_factory=dict)
    adds: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


Schedule = list[Action]


def saved(node: Node, graph: Graph) -> tuple[str, ...]:
    """The tensors of the graph, inputs aside, that a node's backward reads: what it wants kept.

    >>> from llmlab.ops import layernorm
    >>> graph = Graph({"N": 4})
    >>> x = graph.input("x", ("N", 8), role="compute")
    >>> w, b = graph.parameter("w", (8,), False), graph.parameter("b", (8,), False)
    >>> _ = graph.add("ln", layernorm, dict(x=x, weight=w, bias=b), y=("N", 8), mean=("N",), rstd=("N",))
    >>> saved(graph.nodes[0], graph)
    ('ln.mean', 'ln.rstd')
    """
    fused = node.function("forward_backward")
    return graph.activations(node.resolve(name) for name in (fused or node.function("backward")).reads)


def inference(graph: Graph, wanted: Iterable[str]) -> Schedule:
    """Forward only: the nodes that `wanted` depends on, each tensor let go after its last use."""
    wanted = set(wanted)
    writer = _Writer(graph.leading_to(wanted))
    for node in writer.graph.nodes:
        writer.forward(node, Kind.FORWARD)
    return writer.schedule(keep_alive=wanted)


def training(graph: Graph, keep: Collection[str]) -> Schedule:
    """Forward and backward, keeping the tensors in `keep` for backward and computing others again when
    needed.

    The last node must be that of the loss; nodes that it doesn't depend on are left out. Tensors that
    backward never reads are let go whether they are in `keep` or not, and in the end all but the loss.
    Raises ValueError for a name that the graph doesn't make, and for a node whose backward needs a gradient
    that does not exist.
    """
    if unknown := sorted(set(keep) - set(graph.producers)):
        raise ValueError(f"keep has {unknown[0]!r}, which is no activation of this graph")
    value = graph.nodes[-1].results["loss"]
    writer = _Writer(graph.leading_to([value]))
    *body, loss = writer.graph.nodes
    for node in body:
        writer.forward(node, Kind.FORWARD)
    if loss.function("forward_backward"):
        writer.loss(loss)
        writer.let_go_except({*keep, *loss.results.values()})
    else:
        writer.forward(loss, Kind.FORWARD)
        writer.let_go_except({*keep, *loss.results.values()})
        writer.backward(loss)
    for node in reversed(body):
        writer.backward(node)
    return writer.schedule(keep_alive=[value])


class _Writer:
    """Writes calls first, and then, knowing who reads what last, the moments to let go.

    A tensor may live twice: once in the forward pass, and again from its recomputation on. `life[name]` is
    the current life of a tensor, a pair (name, how many before); reads and writes are of lives.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.calls: list[Action] = []
        self.life: dict[str, tuple[str, int]] = {}
        self.last: dict[tuple[str, int], int] = {}
        self.written: list[list[tuple[str, int]]] = []
        self.contributions: dict[str, int] = {}

    # Computing

    def forward(self, node: Node, kind: Kind) -> None:
        """Run a node's forward."""
        self._call(kind, node, node.function("forward"), dict(node.results))

    def loss(self, node: Node) -> None:
        """Run the loss and its gradient in one pass."""
        function = node.function("forward_backward")
        self._call(Kind.FORWARD_BACKWARD, node, function, self._makes(node, function))

    def backward(self, node: Node) -> None:
        """Make what a node's backward reads alive and run it, if the loss depends on the node."""
        reached = any(gradient_name(t) in self.life for t in node.results.values())
        if not reached and node is not self.graph.nodes[-1]:
            return
        function = node.function("backward")
        for name in function.required - function.nullable:
            if name[1:] in node.results and node is not self.graph.nodes[-1]:
                self._must_have_gradient(node, name)
        self._revive(self.graph.activations(node.resolve(name) for name in function.reads))
        self._call(Kind.BACKWARD, node, function, self._makes(node, function))

    def _must_have_gradient(self, node: Node, name: str) -> None:
        tensor = node.results[name[1:]]
        if name[:1] == "d" and gradient_name(tensor) not in self.life:
            raise ValueError(f"nothing that leads to the loss reads {tensor!r}, so it has no gradient, which "
                             f"the backward of node {node.name!r} needs as {name!r}")

    def let_go_except(self, keep: Collection[str]) -> None:
        """The forward pass is over: what a node made and nobody keeps must be computed again from here on."""
        for name in [n for n in self.life if n in self.graph.producers and n not in keep]:
            del self.life[name]

    def _revive(self, names: Iterable[str]) -> None:
        """Compute again those of the tensors that are not alive, after what they depend on."""
        while missing := [n for n in names if n not in self.life]:
            node = self.graph.nodes[self.graph.producers[missing[0]]]
            function = self._cheapest(node)
            makes = {r: node.results[r] for r in function.makes}
            self._revive(self.graph.activations(node.resolve(name) for name in function.reads))
            self._call(Kind.RECOMPUTE, node, function, makes)

    def _cheapest(self, node: Node) -> Function:
        """The op's `recompute`, if it makes all that is missing from what is alive; else its forward."""
        function = node.function("recompute")
        if function:
            own = [node.results[r] for r in function.reads if r in node.results]
            lacking = [r for r, t in node.results.items() if t not in self.life and r not in function.makes]
            alive = all(t in self.life for t in own)
            if alive and not any(self._read_later(node.results[r]) for r in lacking):
                return function
        return node.function("forward")

    def _read_later(self, name: str) -> bool:
        """Whether a backward that is still to come reads the tensor."""
        done = {c.name for c in self.calls if c.kind in (Kind.BACKWARD, Kind.FORWARD_BACKWARD)}
        readers = [self.graph.nodes[i] for i in (self.graph.producers[name], *self.graph.consumers[name])]
        return any(name in saved(n, self.graph) for n in readers if n.name not in done)

    def _makes(self, node: Node, function: Function) -> dict[str, str]:
        """The gradients of activations that a backward makes. Those of parameters are added in place."""
        makes = {}
        for result in function.makes:
            if result in node.results:
                makes[result] = node.results[result]
            elif result[1:] in node.arguments and node.arguments[result[1:]] in self.graph.producers:
                makes[result] = gradient_name(node.arguments[result[1:]])
        return makes

    def _call(self, kind: Kind, node: Node, function: Function, makes: dict[str, str]) -> None:
        """Append a call. A gradient that exists already gets a part of its own, to be added."""
        index = len(self.calls)
        reads = {}
        for name in function.reads:
            tensor = node.resolve(name)
            if tensor in self.life:
                reads[name] = tensor
                self.last[self.life[tensor]] = index
            elif tensor in self.graph.inputs or tensor in self.graph.parameters:
                reads[name] = tensor
        writes, adds, written = {}, [], []
        for result, tensor in makes.items():
            if (tensor in self.life and tensor not in self.graph.producers) or tensor in writes.values():
                part = tensor + "'" * (1 + sum(a[1] == tensor for a in adds))
                adds.append((part, tensor))
                if tensor in self.life:
                    self.last[self.life[tensor]] = index
                tensor = part
            if tensor not in self.life:
                self.contributions[tensor] = lives = self.contributions.get(tensor, -1) + 1
                if not tensor.endswith("'"):
                    self.life[tensor] = (tensor, lives)
                written.append((tensor, lives))
            self.last[(tensor, self.contributions[tensor])] = index
            writes[result] = tensor
        name = function.call.__name__
        self.calls.append(Action(kind, node.name, name, reads, writes, adds=tuple(adds)))
        self.written.append(written)

    # Letting go

    def schedule(self, keep_alive: Collection[str]) -> Schedule:
        """The calls, each followed by a FREE for every tensor that nobody reads after it."""
        ends: dict[int, list[str]] = {}
        for (name, life), index in self.last.items():
            if name not in keep_alive or (name, life) != self.life.get(name):
                ends.setdefault(index, []).append(name)
        schedule: Schedule = []
        memory: dict[str, set[str]] = {}
        for index, call in enumerate(self.calls):
            ending = ends.get(index, [])
            over = self._over(index, call, set(ending), memory)
            for name, _ in self.written[index]:
                memory[name] = memory[over[name]] if name in over else set()
                memory[name].add(name)
            schedule.append(dataclasses.replace(call, over=over))
            for name in ending:
                memory.pop(name).discard(name)
                schedule.append(Action(Kind.FREE, name))
        return schedule

    def _over(
        self, index: int, call: Action, ending: set[str], memory: dict[str, set[str]],
    ) -> dict[str, str]:
        """Which results move into the memory of an argument that ends here, or share that of another result.

        `memory` holds for every tensor the tensors that share its memory, itself included: all must end here.
        """
        op = self.graph.node(call.name).op
        fresh = {name for name, _ in self.written[index]}
        over: dict[str, str] = {}
        for result, arguments in getattr(op, "IN_PLACE", {}).items():
            for argument in arguments:
                new, old = call.writes.get(result), call.reads.get(argument)
                if (new in fresh and new not in over and old in memory and memory[old] <= ending
                        and not memory[old] & set(over.values()) and not self._read_twice(call, memory[old])
                        and self._same_size(new, old)):
                    over[new] = old
        for result, other in getattr(op, "SHARED", {}).items():
            new, old = call.writes.get(result), call.writes.get(other)
            both = new in fresh and old in fresh and new not in over
            if both and not self._added_before_end(old, new, index):
                over[new] = old
        return over

    def _read_twice(self, call: Action, names: set[str]) -> bool:
        return sum(name in names for name in call.reads.values()) > 1

    def _same_size(self, a: str, b: str) -> bool:
        one, two = self.graph.tensor(a), self.graph.tensor(b)
        return one.shape == two.shape and one.role == two.role

    def _added_before_end(self, old: str, new: str, index: int) -> bool:
        """Whether something is added into one of two equal gradients while the other is still to be read."""
        end = min(self.last[self.life[name]] if name in self.life else index for name in (old, new))
        later = self.calls[index + 1:end + 1]
        return any(whole in (old, new) for call in later for _, whole in call.adds)
