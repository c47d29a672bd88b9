"""The engine refuses, by name, what it could not run; nothing was computed then."""

import dataclasses

import numpy as np
import pytest

from llmlab.engine import Engine
from llmlab.models import gpt2
from llmlab.parameters import Parameters

CONFIG = gpt2.Config(V=13, T=8, L=2, H=2, C=16)
B = 4


def make(**options):
    graph = gpt2.build(CONFIG, B)
    parameters = Parameters(graph.parameters)
    gpt2.initialise(parameters, CONFIG, seed=1)
    return Engine(graph, parameters, **options)


@pytest.mark.parametrize(("tokens", "targets", "error", "message"), [
    (np.zeros((5, 8), int), None, ValueError, r"tokens has shape \(5, 8\), needs to be \(b, t\) with 1 <= b"),
    (np.zeros((0, 8), int), None, ValueError, "1 <= b <= 4"),
    (np.zeros(8, int), None, ValueError, r"needs to be \(b, t\)"),
    (np.zeros((1, 8)), None, TypeError, "tokens has dtype float64, needs whole numbers"),
    (np.zeros((1, 8), int), np.zeros((1, 7), int), ValueError, r"targets has shape \(1, 7\), needs that of"),
    (np.full((1, 8), 13), np.zeros((1, 8), int), ValueError, r"tokens\[0, 0\] is 13, needs to lie in"),
    (np.full((1, 8), 2**32), np.zeros((1, 8), int), ValueError, "tokens.* is 4294967296"),
    (np.zeros((1, 8), int), np.full((1, 8), -1), ValueError, r"targets\[0, 0\] is -1, .* \(or -100, which"),
])
def test_bad_batches_are_refused_by_name(tokens, targets, error, message):
    engine = make()
    with pytest.raises(error, match=message):
        engine.forward_backward(tokens, tokens if targets is None else targets)


@pytest.mark.parametrize(("factor", "error", "message"), [
    ([0.5], TypeError, r"is \[0\.5\], needs to be a number"),
    ("a", TypeError, "is 'a', needs to be a number"),
    (np.ones(2), ValueError, r"has shape \(2,\), needs to be a number, or an array of one element"),
    (np.nan, ValueError, "is nan"),
])
@pytest.mark.parametrize("name", ["weight", "scale"])
@pytest.mark.parametrize("workers", [1, 2])
def test_factors_of_the_loss_are_single_numbers(name, workers, factor, error, message):
    engine = make(workers=workers)
    with pytest.raises(error, match=f"^{name} {message}"):
        engine.forward_backward(*np.zeros((2, B, CONFIG.T), int), **{name: factor})
    assert not engine.parameters.gradient.any()
    assert engine.step == 0


def test_ragged_batches_are_refused_by_name():
    engine, ragged = make(), [[1, 2, 3], [1]]
    with pytest.raises(ValueError, match="tokens is ragged, needs rows of one length; pad them"):
        engine.logits(ragged)
    with pytest.raises(ValueError, match="targets is ragged"):
        engine.loss(np.zeros((2, 3), int), ragged)


@pytest.mark.parametrize(("options", "message"), [
    ({"policy": None}, "policy is None, needs to be one of none, selective, full, or a set of tensor names"),
    ({"policy": 3}, "policy is 3, needs to be one of none"),
    ({"workers": "2"}, "workers is '2', needs to be an integer"),
    ({"workers": 1.5}, r"workers is 1\.5, needs to be an integer"),
    ({"workers": None}, "workers is None"),
    ({"workers": True}, "workers is True"),
    ({"observer": 3}, r"observer is 3, needs to be a function of \(action, node\), or None"),
])
def test_bad_options_are_named(options, message):
    with pytest.raises(TypeError, match=message):
        make(**options)


def test_training_needs_targets():
    engine, tokens = make(), np.zeros((1, 8), int)
    for door in (engine.forward_backward, engine.loss):
        door(tokens, tokens)
        with pytest.raises(TypeError, match="targets has dtype object, needs whole numbers"):
            door(tokens, None)


def test_parameters_must_be_those_of_the_graph():
    other = Parameters(gpt2.build(dataclasses.replace(CONFIG, C=32), B).parameters)
    with pytest.raises(ValueError, match=r"no 'wte\.weight' of shape \(13, 16\); it was made for another"):
        Engine(gpt2.build(CONFIG, B), other)


@pytest.mark.parametrize("workers", [0, 5])
def test_workers_must_fit_the_batch(workers):
    with pytest.raises(ValueError, match=rf"workers is {workers}, needs to lie in \[1, 4\]"):
        make(workers=workers)


def test_a_loss_that_takes_no_logits_needs_the_graph_to_name_them():
    graph = gpt2.build(CONFIG, B, logits_rows=5)
    graph.logits = None
    with pytest.raises(ValueError, match=r"ends in 'loss', which takes no logits.* set graph\.logits to"):
        Engine(graph, Parameters(graph.parameters))


def test_a_loss_that_takes_logits_says_which_they_are():
    graph = gpt2.build(CONFIG, B)
    graph.logits = None
    assert Engine(graph, Parameters(graph.parameters)).logits(np.zeros((1, 3), int)).shape == (1, 3, CONFIG.V)
