"""Schedules are data: they are read here as text, and checked against what every op's signature asks for."""

import dataclasses
from collections import Counter

import pytest

from llmlab.checkpointing import policies
from llmlab.checkpointing.schedule import Kind, inference, training
from llmlab.graph import Graph, gradient_name
from llmlab.models import gpt2
from llmlab.ops import cross_entropy, dropout, gelu, linear, residual, residual_layernorm, softmax

CONFIG = gpt2.Config(V=11, T=8, L=3, H=2, C=8)


def text(schedule):
    return [str(action) for action in schedule]


def chain(*ops, loss=cross_entropy):
    """Elementwise ops from x to a loss, with a linear layer first so that there are gradients."""
    graph = Graph({"N": 4})
    graph.input("x", ("N", 8), role="compute")
    graph.input("targets", ("N",))
    graph.parameter("w", (8, 8), decayed=True)
    y = graph.add("0", linear, {"x": "x", "weight": "w"}, y=("N", 8))
    for i, op in enumerate(ops, 1):
        y = graph.add(str(i), op, {"x": y}, y=("N", 8))
    graph.add("loss", loss, {"logits": y, "targets": "targets"}, loss=(), lse=("N",))
    return graph


def test_a_chain_with_everything_kept():
    """softmax's backward reads its result, gelu's its argument."""
    graph = chain(gelu, softmax)
    assert text(training(graph, policies.none(graph))) == [
        "FORWARD 0", "FORWARD 1", "FORWARD 2", "FREE 1.y", "FORWARD_BACKWARD loss",
        "BACKWARD 2", "FREE 2.y", "FREE d(2.y)",
        "BACKWARD 1", "FREE 0.y", "FREE d(1.y)",
        "BACKWARD 0", "FREE d(0.y)",
    ]


def test_a_chain_with_nothing_kept():
    """What is made again on the way to one backward stays for the backward that still needs it."""
    assert text(training(chain(gelu, softmax), set())) == [
        "FORWARD 0", "FORWARD 1", "FREE 0.y", "FORWARD 2", "FREE 1.y", "FORWARD_BACKWARD loss", "FREE 2.y",
        "RECOMPUTE 0", "RECOMPUTE 1", "RECOMPUTE 2", "FREE 1.y", "BACKWARD 2", "FREE d(2.y)", "FREE 2.y",
        "BACKWARD 1", "FREE 0.y", "FREE d(1.y)",
        "BACKWARD 0", "FREE d(0.y)",
    ]


@pytest.mark.parametrize("policy", policies.POLICIES)
@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize("logits_rows", [None, 5])
def test_whatever_an_op_reads_is_alive_and_right(policy, p, logits_rows):
    """Replay with, for every piece of memory, the tensor whose values it holds."""
    graph = gpt2.build(dataclasses.replace(CONFIG, dropout=p), B=2, logits_rows=logits_rows)
    content = {}
    for action in training(graph, policies.keep(policy, graph)):
        if action.kind is Kind.FREE:
            assert action.name in content
            del content[action.name]
            continue
        node = graph.node(action.name)
        for name in node.function(action.function).required:
            tensor = node.resolve(name)
            outside = tensor is None or tensor in graph.inputs or tensor in graph.parameters
            if not outside and tensor != gradient_name("loss.loss"):
                last_norm = (name, action.name) == ("dr", "ln_f")  # r of the last norm has no other reader
                assert last_norm or action.reads[name] in content
        for tensor in action.writes.values():
            content[tensor] = action.name
        for part, whole in action.adds:
            assert part in content
            assert whole in content
    assert set(content) == {"loss.loss"}


@pytest.mark.parametrize("logits_rows", [None, 5])
def test_gradients_of_every_parameter_are_made_once_for_each_use(logits_rows):
    graph = gpt2.build(CONFIG, B=2, logits_rows=logits_rows)
    made, run = Counter(), set()
    for action in training(graph, policies.none(graph)):
        run.add(action.name)
        if action.kind in (Kind.BACKWARD, Kind.FORWARD_BACKWARD):
            node = graph.node(action.name)
            makes = [m[1:] for m in node.function(action.function).makes]
            made.update(node.arguments[m] for m in makes if m in node.arguments)
    uses = Counter(a for n in graph.nodes if n.name in run for a in n.arguments.values())
    assert {p: made[p] for p in graph.parameters} == {p: uses[p] for p in graph.parameters}


@pytest.mark.parametrize("policy", policies.POLICIES)
def test_a_head_that_the_loss_does_without_is_left_out_and_the_workspace_let_go(policy):
    """Nor does the head, which is never run backward, keep its argument alive: dx is written over it."""
    graph = gpt2.build(CONFIG, B=2, logits_rows=5)
    schedule = training(graph, policies.keep(policy, graph))
    assert "FORWARD head" not in text(schedule)
    assert "FORWARD head" not in text(inference(graph, ["loss.loss"]))
    assert "FORWARD head" in text(inference(graph, [graph.logits]))
    at = text(schedule).index("FORWARD_BACKWARD loss")
    assert schedule[at].over == {"d(ln_f.y)": "ln_f.y"}
    assert {"FREE loss.logits", "FREE ln_f.y"} == {str(a) for a in schedule[at + 1:at + 3]}
    assert not any(a.kind is Kind.RECOMPUTE and a.name == "ln_f" for a in schedule)


def test_recomputation_by_policy():
    """What is computed again: nothing; norms and GELU; all but the product that ends a block."""
    graph = gpt2.build(CONFIG, B=2)
    again = {
        policy: Counter(
            graph.node(a.name).op.__name__.rpartition(".")[2]
            for a in training(graph, policies.keep(policy, graph)) if a.kind is Kind.RECOMPUTE)
        for policy in policies.POLICIES
    }
    L = CONFIG.L
    assert again["none"] == {}
    assert again["selective"] == {"layernorm": 1, "residual_layernorm": 2 * L, "gelu": L}
    assert again["full"] == {
        "layernorm": 1, "residual_layernorm": 2 * L, "gelu": L, "attention": L, "linear": 3 * L}


def test_what_crosses_between_blocks_is_one_tensor():
    graph = gpt2.build(CONFIG, B=2)
    large = {n for n in policies.full(graph) if len(graph.tensors[n].shape) == 3 and "lse" not in n}
    assert large == {"embedding.x", "h.1.ln_1.r", "h.2.ln_1.r", "ln_f.r", "head.y"}


def test_forward_only_lets_go_at_once():
    graph = gpt2.build(CONFIG, B=2)
    schedule = inference(graph, ["head.y"])
    assert not any(a.name == "loss" for a in schedule)
    alive, most = set(), 0
    for action in schedule:
        alive ^= {action.name} if action.kind is Kind.FREE else set(action.writes.values())
        most = max(most, len(alive))
    assert most <= 8
    assert alive == {"head.y"}


def test_elementwise_results_move_into_dying_arguments():
    graph = gpt2.build(CONFIG, B=2)
    over = {a.name: a.over for a in training(graph, policies.none(graph)) if a.kind is Kind.BACKWARD}
    assert over["h.0.mlp.act"] == {"d(h.0.mlp.c_fc.y)": "d(h.0.mlp.act.y)"}
    assert over["h.1.ln_2"]["d(h.1.attn.c_proj.y)"] == "d(h.1.ln_1.r)"


def test_memory_that_two_names_share_is_not_overwritten_while_one_lives():
    """residual_layernorm's dx and dbranch share memory; dropout's backward must not write over it."""
    graph = gpt2.build(dataclasses.replace(CONFIG, dropout=0.5), B=2)
    for action in training(graph, policies.none(graph)):
        if action.kind is Kind.BACKWARD and graph.node(action.name).op is dropout:
            assert bool(action.over) == (action.name == "embedding.dropout")  # that one shares with nobody


def test_a_gradient_that_grows_is_not_shared():
    """x feeds a sum twice removed from it: while d(x) is added to, d(branch) must stay as it was."""
    graph = Graph({"N": 4})
    graph.input("x", ("N", 8), role="compute")
    graph.input("targets", ("N",))
    graph.parameter("w", (8, 8), decayed=True)
    a = graph.add("a", linear, {"x": "x", "weight": "w"}, y=("N", 8))
    branch = graph.add("branch", linear, {"x": "x", "weight": "w"}, y=("N", 8))
    other = graph.add("other", gelu, {"x": a}, y=("N", 8))
    first = graph.add("first", residual, {"x": a, "branch": branch}, y=("N", 8))
    last = graph.add("last", residual, {"x": first, "branch": other}, y=("N", 8))
    graph.add("loss", cross_entropy, {"logits": last, "targets": "targets"}, loss=(), lse=("N",))
    schedule = training(graph, policies.none(graph))
    first_backward = next(i for i, s in enumerate(text(schedule)) if s == "BACKWARD first")
    added = [i for i, action in enumerate(schedule) if ("d(a.y)'", "d(a.y)") in action.adds]
    branch_backward = text(schedule).index("BACKWARD branch")
    shared = "d(branch.y)" in schedule[first_backward].over
    assert len(added) == 1
    assert not (shared and added[0] < branch_backward)


def test_a_gradient_that_does_not_exist_is_named():
    graph = Graph({"N": 4})
    graph.input("x", ("N", 8), role="compute")
    graph.input("targets", ("N",))
    for name in ("scale", "shift"):
        graph.parameter(name, (8,), decayed=False)
    arguments = {"x": "x", "branch": "x", "weight": "scale", "bias": "shift"}
    r, *_ = graph.add("norm", residual_layernorm, arguments,
                      r=("N", 8), y=("N", 8), mean=("N",), rstd=("N",))
    graph.add("loss", cross_entropy, {"logits": r, "targets": "targets"}, loss=(), lse=("N",))
    with pytest.raises(ValueError, match=r"reads 'norm\.y', so it has no gradient, .* needs as 'dy'"):
        training(graph, ())


def test_unknown_names_are_refused():
    graph = gpt2.build(CONFIG, B=2)
    with pytest.raises(ValueError, match=r"keep has 'h\.9\.y'"):
        training(graph, {"h.9.y"})
    with pytest.raises(ValueError, match="policy is 'some', needs to be one of none, selective, full"):
        policies.keep("some", graph)
