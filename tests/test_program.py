"""Any graph, any set of kept tensors: the engine against an interpreter that keeps everything apart."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llmlab.checkpointing import policies
from llmlab.checkpointing.schedule import training
from llmlab.engine import Engine
from llmlab.graph import Graph, statistic
from llmlab.ops import (
    cross_entropy,
    dropout,
    embedding,
    gelu,
    layernorm,
    linear,
    residual,
    residual_layernorm,
    softmax,
)
from llmlab.parameters import Parameters

N, T, C = 2, 3, 4
SHAPE = ("B", "T", C)


@st.composite
def graphs(draw):
    """A random network: each op reads any recent tensors, so that many are read several times, or never."""
    graph = Graph({"B": N, "T": T})
    graph.input("tokens", ("B", "T"))
    graph.input("targets", ("B", "T"))
    graph.input("step", (), role="counter")
    table = graph.parameter("table", (C, C), decayed=True)
    position = graph.parameter("position", (T, C), decayed=True)
    weight = graph.parameter("weight", (C, C), decayed=True)
    scale = graph.parameter("scale", (C,), decayed=False)
    shift = graph.parameter("shift", (C,), decayed=False)
    tensors = [graph.add("0", embedding, {"tokens": "tokens", "wte": table, "wpe": position}, x=SHAPE)]
    norm = {"y": SHAPE, "mean": statistic("B", "T"), "rstd": statistic("B", "T")}
    for i in range(1, draw(st.integers(1, 9)) + 1):
        kind = draw(st.sampled_from(["linear", "gelu", "softmax", "residual", "norm", "sum norm", "dropout"]))
        x, other = (draw(st.sampled_from(tensors[-3:])) for _ in range(2))
        graph.block = draw(st.sampled_from([None, 0, 1]))
        if kind == "linear":
            tensors.append(graph.add(str(i), linear, {"x": x, "weight": weight, "bias": shift}, y=SHAPE))
        elif kind == "gelu":
            tensors.append(graph.add(str(i), gelu, {"x": x, "bias": shift}, y=SHAPE))
        elif kind == "softmax":
            tensors.append(graph.add(str(i), softmax, {"x": x}, y=SHAPE))
        elif kind == "residual":
            tensors.append(graph.add(str(i), residual, {"x": x, "branch": other}, y=SHAPE))
        elif kind == "norm":
            made = graph.add(str(i), layernorm, {"x": x, "weight": scale, "bias": shift}, **norm)
            tensors.append(made[0])
        elif kind == "sum norm":
            arguments = {"x": x, "branch": other, "weight": scale, "bias": shift, "branch_bias": shift}
            made = graph.add(str(i), residual_layernorm, arguments, r=SHAPE, **norm)
            tensors += made[:2]
        else:
            attributes = {"p": 0.3, "seed": 5, "layer": i}
            tensors.append(graph.add(str(i), dropout, {"x": x, "step": "step"}, attributes, y=SHAPE))
    graph.block = None
    arguments = {"logits": tensors[-1], "targets": "targets"}
    graph.add("loss", cross_entropy, arguments, loss=(), lse=statistic("B", "T"))
    return graph


def interpret(graph, parameters, inputs):
    """Loss and gradients with every tensor in an array of its own, gradients added up as they come."""
    values = {**parameters, **inputs}
    gradients = {"loss.loss": np.ones(())}

    def known(node, names):
        found = {}
        for name in names:
            source = next((m[name] for m in (node.arguments, node.results) if name in m), None)
            if source is not None:
                found[name] = values[source]
            elif name in node.attributes:
                found[name] = node.attributes[name]
            elif name[0] == "d" and name[1:] in node.results:
                found[name] = gradients.get(node.results[name[1:]])
        return found

    for node in graph.nodes:
        results = node.op.forward(**known(node, node.function("forward").reads))
        results = results if isinstance(results, tuple) else (results,)
        values |= dict(zip((node.results[r] for r in node.function("forward").makes), results))
    for node in reversed(graph.nodes):
        backward = node.function("backward")
        given_ = known(node, backward.reads)
        if all(value is None for name, value in given_.items() if name[0] == "d"):
            continue
        results = node.op.backward(**given_)
        results = results if isinstance(results, tuple) else (results,)
        for name, gradient in zip(backward.makes, results):
            if name[1:] in node.arguments and gradient is not None:
                tensor = node.arguments[name[1:]]
                gradients[tensor] = gradients.get(tensor, 0) + gradient
    return values["loss.loss"], gradients


@settings(max_examples=80)
@given(graphs(), st.data())
def test_the_engine_equals_the_interpreter(graph, data):
    generator = np.random.default_rng(0)
    parameters = Parameters(graph.parameters, dtype="float64")
    for view in parameters.values():
        view[...] = generator.normal(size=view.shape)
    tokens, targets = generator.integers(0, C, (2, N, T))
    try:
        training(graph, ())
    except ValueError:  # a norm whose y leads nowhere
        assume(False)
    loss, expected = interpret(graph, parameters, {"tokens": tokens, "targets": targets, "step": np.array(0)})
    everything = sorted(policies.none(graph))
    kept = data.draw(st.sets(st.sampled_from(everything))) if everything else set()
    for policy in ("none", "selective", "full", kept):
        parameters.zero_grad()
        engine = Engine(graph, parameters, policy=policy)
        np.testing.assert_allclose(engine.forward_backward(tokens, targets), loss, rtol=1e-12)
        for name, view in parameters.grad.items():
            reference = expected.get(name, np.zeros(view.shape))
            np.testing.assert_allclose(view, reference, rtol=1e-9, atol=1e-12, err_msg=f"{policy}: {name}")
