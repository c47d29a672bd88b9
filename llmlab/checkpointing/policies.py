"""What to keep for the backward pass. A policy turns a graph into the set of tensors to keep.

    none        no checkpointing: everything that a backward reads is kept
    selective   what elementwise ops made is computed again, what matrix products made is kept
    full        only what enters a block is kept; inside, everything is computed again

The names follow the literature: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016) for
`full`; Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022) for
`selective`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from llmlab.checkpointing.schedule import saved
from llmlab.graph import Graph, Node

__all__ = ["POLICIES", "full", "keep", "none", "selective"]

DEAR = frozenset({"linear", "attention"})
"""Ops made of matrix products: what they made is worth its memory."""


def none(graph: Graph) -> frozenset[str]:
    """Keep everything that a backward reads."""
    return frozenset(name for node in graph.nodes for name in saved(node, graph))


def selective(graph: Graph) -> frozenset[str]:
    """Keep all but what one cheap op inside a block can make again from what is kept."""
    kept = set(none(graph))
    for node in graph.nodes:
        if node.block is None or node.op.__name__.rpartition(".")[2] in DEAR:
            continue
        for name in node.results.values():
            sources = _sources(node, name, graph) if name in kept else None
            if sources is not None and sources <= kept - {name}:
                kept.discard(name)
    return frozenset(kept)


def full(graph: Graph) -> frozenset[str]:
    """Keep what crosses from one block into another, and everything outside of blocks."""
    kept = set()
    for node in graph.nodes:
        for name in node.results.values():
            crosses = any(graph.nodes[j].block != node.block for j in graph.consumers[name])
            if node.block is None or crosses:
                kept.add(name)
    for name in sorted(kept):
        node = graph.nodes[graph.producers[name]]
        sources = _sources(node, name, graph)
        if node.block is not None and sources is not None and sources < set(node.results.values()):
            kept.discard(name)  # a norm's y, which can be made again from its own r, mean and rstd
            kept |= sources
    return frozenset(kept)


POLICIES: dict[str, Callable[[Graph], frozenset[str]]] = {"none": none, "selective": selective, "full": full}


def keep(policy: str | Collection[str], graph: Graph) -> frozenset[str]:
    """The tensors that a policy keeps, by the policy's name or given as the set itself."""
    if isinstance(policy, Collection) and not isinstance(policy, str):
        return frozenset(policy)
    if not isinstance(policy, str) or policy not in POLICIES:
        error = ValueError if isinstance(policy, str) else TypeError
        raise error(f"policy is {policy!r}, needs to be one of "
                    f"{', '.join(POLICIES)}, or a set of tensor names")
    return POLICIES[policy](graph)


def _sources(node: Node, name: str, graph: Graph) -> frozenset[str] | None:
    """The activations from which one call of the node's op makes the tensor again; None if none does."""
    for which in ("recompute", "forward"):
        function = node.function(which)
        if function and name in (node.results.get(result) for result in function.makes):
            return frozenset(graph.activations(node.resolve(argument) for argument in function.reads))
    return None
