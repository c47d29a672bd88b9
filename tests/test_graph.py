"""The graph refuses what its ops could not run, and knows shapes, bytes and neighbours."""

import numpy as np
import pytest

from llmlab.graph import Graph, gradient_name, statistic
from llmlab.ops import layernorm, linear


@pytest.fixture
def graph():
    graph = Graph({"B": 2, "T": 3})
    graph.input("x", ("B", "T", 4), role="compute")
    graph.parameter("w", (4,), decayed=False)
    graph.parameter("b", (4,), decayed=False)
    return graph


def add_norm(graph, **changes):
    arguments = {"x": "x", "weight": "w", "bias": "b"} | changes
    shapes = {"y": ("B", "T", 4), "mean": statistic("B", "T"), "rstd": statistic("B", "T")}
    return graph.add("ln", layernorm, {k: v for k, v in arguments.items() if v}, **shapes)


def test_names_resolve_through_arguments_results_and_gradients(graph):
    add_norm(graph)
    node = graph.nodes[0]
    assert [node.resolve(n) for n in ("x", "weight", "rstd", "dy", "dx", "eps")] == [
        "x", "w", "ln.rstd", gradient_name("ln.y"), gradient_name("x"), None]


def test_bytes_follow_role_and_precision_and_are_aligned(graph):
    add_norm(graph)
    half, single, double = (np.dtype(t) for t in ("float16", "float32", "float64"))
    assert graph.dtype("ln.y", half) == half
    assert graph.dtype("ln.mean", half) == single
    assert graph.dtype("ln.mean", double) == double
    assert graph.nbytes("ln.y", double) == 256
    assert graph.nbytes(gradient_name("ln.y"), half) == 256
    assert graph.shape("ln.y", {"B": 1, "T": 2}) == (1, 2, 4)


@pytest.mark.parametrize(("changes", "message"), [
    ({"z": "x"}, "it has no 'z'"),
    ({"weight": None}, "also needs 'weight'"),
    ({"x": "nowhere"}, "'nowhere', which nothing before it makes"),
])
def test_a_node_that_could_not_run_is_refused(graph, changes, message):
    with pytest.raises(ValueError, match=message):
        add_norm(graph, **changes)


def test_neighbours_are_known_while_the_graph_grows(graph):
    assert graph.producers == {}
    add_norm(graph)
    assert graph.producers["ln.y"] == 0
    assert graph.consumers["x"] == (0,)


def test_results_must_be_those_of_the_op(graph):
    graph.parameter("v", (8, 4), decayed=True)
    with pytest.raises(ValueError, match="forward makes y; shapes were given for z"):
        graph.add("fc", linear, {"x": "x", "weight": "v"}, z=("B", "T", 8))


def test_names_are_unique(graph):
    add_norm(graph)
    with pytest.raises(ValueError, match=r"has a 'ln\.y' already"):
        add_norm(graph)
    with pytest.raises(ValueError, match="has a 'w' already"):
        graph.parameter("w", (4,), decayed=False)
