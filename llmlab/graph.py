"""A network as an ordered list of named ops.

What an op reads and makes stands in its signatures: see `op_interface`. Here names in a signature meet
names in the network, and a node that its op could not run is refused.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np

from llmlab.op_interface import Function, function

__all__ = ["Graph", "Node", "Parameter", "Tensor", "gradient_name", "statistic"]

ALIGNMENT = 256
"""Bytes. Every tensor starts on such a boundary, as from CUDA's own allocator: any vector access fits."""


@dataclass(frozen=True)
class Tensor:
    """An activation or an input. `shape` mixes numbers and the names of the graph's sizes, such as ("B",
    "T", 128).

    `role` says its dtype: "compute" follows the precision, "sum" is float32 (float64 when computing in
    float64), "index" is int32, "counter" is int64.
    """

    name: str
    shape: tuple[str | int, ...]
    role: str = "compute"

    def dtype(self, compute: np.dtype) -> np.dtype:
        """The dtype it has when the network computes in `compute`."""
        if self.role == "index":
            return np.dtype(np.int32)
        if self.role == "counter":
            return np.dtype(np.int64)
        if self.role == "sum":
            return np.dtype(np.float64 if compute == np.float64 else np.float32)
        return compute


@dataclass(frozen=True)
class Parameter:
    """What is trained. `decayed` says whether weight decay acts on it: on matrices and embeddings it does."""

    name: str
    shape: tuple[int, ...]
    decayed: bool


@dataclass(frozen=True)
class statistic:
    """A result's shape, where it is kept in the dtype of sums: `add(..., mean=statistic("B", "T"))`."""

    shape: tuple[str | int, ...]

    def __init__(self, *shape: str | int) -> None:
        object.__setattr__(self, "shape", shape)


@dataclass(frozen=True)
class Node:
    """One op at its place. `arguments` and `results` map its signature's names to names in the graph."""

    name: str
    op: ModuleType
    arguments: Mapping[str, str]
    results: Mapping[str, str]
    attributes: Mapping[str, Any]
    block: int | None = None

    def function(self, name: str) -> Function | None:
        """The op's function of that name, or None."""
        return function(self.op, name)

    def resolve(self, name: str) -> str | None:
        """The graph's name for a name in a signature; None for an attribute or an argument left out.

        `dy` is the gradient of the tensor or parameter that `y` stands for.
        """
        for names in (self.arguments, self.results):
            if name in names:
                return names[name]
            if name[:1] == "d" and name[1:] in names:
                return gradient_name(names[name[1:]])
        return None

    def attributes_of(self, function: Function) -> dict[str, Any]:
        """Those of this node's attributes that the function takes."""
        return {name: value for name, value in self.attributes.items() if name in function.reads}


def gradient_name(name: str) -> str:
    """The name of the gradient of the loss with respect to a tensor.

    >>> gradient_name("ln_f.y")
    'd(ln_f.y)'
    """
    return f"d({name})"


@dataclass
class Graph:
    """An ordered list of nodes, the tensors between them and the parameters under them.

    `sizes` gives the named sizes that shapes may use: the largest batch and length that the graph is for.
    `logits` names the tensor of predictions; None stands for the argument `logits` of the loss, the last
    node, and does for a loss that has such an argument.

    >>> from llmlab.ops import gelu, linear
    >>> graph = Graph({"B": 2, "T": 3})
    >>> x = graph.input("x", ("B", "T", 4), role="compute")
    >>> w = graph.parameter("fc.weight", (8, 4), decayed=True)
    >>> u = graph.add("fc", linear, {"x": x, "weight": w}, y=("B", "T", 8))
    >>> graph.add("act", gelu, {"x": u}, y=("B", "T", 8))
    'act.y'
    >>> graph.shape("act.y"), graph.nbytes("act.y", np.dtype("float32"))
    ((2, 3, 8), 256)
    """

    sizes: dict[str, int]
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    block: int | None = None
    logits: str | None = None

    def input(self, name: str, shape: tuple[str | int, ...], role: str = "index") -> str:
        """A tensor that comes from outside. Returns its name."""
        self._declare(Tensor(name, shape, role))
        self.inputs.append(name)
        return name

    def parameter(self, name: str, shape: tuple[int, ...], decayed: bool) -> str:
        """A trained array. Returns its name."""
        if name in self.parameters or name in self.tensors:
            raise ValueError(f"the graph has a {name!r} already; names must differ")
        self.parameters[name] = Parameter(name, shape, decayed)
        return name

    def add(
        self, name: str, op: ModuleType, arguments: Mapping[str, str],
        attributes: Mapping[str, Any] | None = None, **results: tuple[str | int, ...] | statistic,
    ) -> str | tuple[str, ...]:
        """Append a node. A result `y` becomes the tensor "<name>.y"; returns the names of the results, in
        order.

        Keyword arguments give the results' shapes, or `statistic(...)` for one in the dtype of sums.
        """
        forward = function(op, "forward")
        attributes = dict(attributes or {})
        _check(name, op, forward, arguments, attributes, results)
        for argument, tensor in arguments.items():
            if tensor not in self.tensors and tensor not in self.parameters:
                raise ValueError(f"node {name!r}: argument {argument!r} is {tensor!r}, "
                                 f"which nothing before it makes")
        made = {}
        for result, shape in results.items():
            role = "sum" if isinstance(shape, statistic) else "compute"
            made[result] = f"{name}.{result}"
            self._declare(Tensor(made[result], shape.shape if isinstance(shape, statistic) else shape, role))
        for known in ("producers", "consumers"):
            self.__dict__.pop(known, None)
        self.nodes.append(Node(name, op, dict(arguments), made, attributes, self.block))
        return tuple(made.values()) if len(made) > 1 else next(iter(made.values()))

    def _declare(self, tensor: Tensor) -> None:
        if tensor.name in self.tensors or tensor.name in self.parameters:
            raise ValueError(f"the graph has a {tensor.name!r} already; names must differ")
        self.tensors[tensor.name] = tensor

    def shape(self, tensor: str, sizes: Mapping[str, int] | None = None) -> tuple[int, ...]:
        """The shape of a tensor (or of its gradient), at the graph's sizes or at smaller ones."""
        sizes = sizes or self.sizes
        return tuple(sizes[n] if isinstance(n, str) else n for n in self.tensor(tensor).shape)

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name; for `d(x)`, and for `d(x)'`, a second part of it, the tensor x."""
        return self.tensors[name.rstrip("'")[2:-1] if name[:2] == "d(" else name]

    def dtype(self, tensor: str, compute: np.dtype) -> np.dtype:
        """The dtype of a tensor (or of its gradient) when the network computes in `compute`."""
        return self.tensor(tensor).dtype(compute)

    def nbytes(self, tensor: str, compute: np.dtype) -> int:
        """Bytes of a tensor (or of its gradient), rounded up to the alignment."""
        size = math.prod(self.shape(tensor)) * self.dtype(tensor, compute).itemsize
        return -(-size // ALIGNMENT) * ALIGNMENT

    def evaluation(self) -> Graph:
        """The same graph, with every node as it is when a network is evaluated and not trained.

        >>> from llmlab.ops import dropout
        >>> graph = Graph({"N": 2})
        >>> x, step = graph.input("x", ("N",), role="compute"), graph.input("step", (), role="counter")
        >>> attributes = {"p": 0.1, "seed": 0, "layer": 0}
        >>> _ = graph.add("drop", dropout, {"x": x, "step": step}, attributes, y=("N",))
        >>> graph.evaluation().nodes[0].attributes["p"]
        0.0
        """
        changes = [getattr(node.op, "EVALUATION", {}) for node in self.nodes]
        nodes = [replace(n, attributes={**n.attributes, **c}) for n, c in zip(self.nodes, changes)]
        return replace(self, nodes=nodes)

    def leading_to(self, wanted: Iterable[str]) -> Graph:
        """The same graph with those nodes only that the tensors depend on.

        >>> from llmlab.ops import gelu
        >>> graph = Graph({"N": 2})
        >>> x = graph.input("x", ("N",), role="compute")
        >>> a, b = (graph.add(name, gelu, {"x": x}, y=("N",)) for name in "ab")
        >>> [node.name for node in graph.leading_to([b]).nodes]
        ['b']
        """
        needed = set(wanted)
        for node in reversed(self.nodes):
            if needed.intersection(node.results.values()):
                needed.update(node.arguments.values())
        return replace(self, nodes=[n for n in self.nodes if needed.intersection(n.results.values())])

    def node(self, name: str) -> Node:
        """The node of that name."""
        return next(node for node in self.nodes if node.name == name)

    def activations(self, names: Iterable[str | None]) -> tuple[str, ...]:
        """Those of the names that are tensors made by a node: not inputs, parameters or attributes."""
        return tuple(n for n in names if n in self.tensors and n not in self.inputs)

    @functools.cached_property
    def producers(self) -> dict[str, int]:
        """For every tensor that a node makes, the index of that node."""
        return {tensor: i for i, node in enumerate(self.nodes) for tensor in node.results.values()}

    @functools.cached_property
    def consumers(self) -> dict[str, tuple[int, ...]]:
        """For every tensor, the indices of the nodes that take it as an argument."""
        found: dict[str, list[int]] = {name: [] for name in self.tensors}
        for i, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.arguments.values()):
                if name in found:
                    found[name].append(i)
        return {name: tuple(indices) for name, indices in found.items()}


def _check(name: str, op: ModuleType, forward: Function, arguments: Mapping[str, str],
           attributes: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Refuse a node that its op could not run."""
    given = [*arguments, *attributes]
    where = f"node {name!r} ({op.__name__.rpartition('.')[2]})"
    if unknown := [n for n in given if n not in forward.reads]:
        raise ValueError(f"{where}: forward takes {', '.join(forward.reads)}; it has no {unknown[0]!r}")
    if missing := [n for n in forward.reads if n in forward.required and n not in given]:
        raise ValueError(f"{where}: forward also needs {missing[0]!r}")
    if set(results) != set(forward.makes):
        raise ValueError(f"{where}: forward makes {', '.join(forward.makes)}; "
                         f"shapes were given for {', '.join(results)}")
