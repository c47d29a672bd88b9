"""GPT-2: against transformers' own, against finite differences, and against published counts."""

import numpy as np
import pytest

from llmlab import gradcheck
from llmlab.engine import Engine
from llmlab.models import gpt2
from llmlab.parameters import Parameters


@pytest.mark.parametrize(("name", "count"), [
    ("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080),
    ("gpt2-xl", 1_557_611_200)])
def test_published_counts(name, count):
    """The tied head is counted once."""
    graph = gpt2.build(gpt2.Config(V=50257, T=1024, **gpt2.SIZES[name]), B=1)
    assert sum(np.prod(p.shape) for p in graph.parameters.values()) == count


def test_padding_of_the_vocabulary_is_counted():
    config = gpt2.Config(V=50257, T=1024, **gpt2.SIZES["gpt2"], vocabulary_multiple=128)
    graph = gpt2.build(config, B=1)
    assert sum(np.prod(p.shape) for p in graph.parameters.values()) == 124_475_904


def test_initial_weights():
    config = gpt2.Config(V=300, T=64, L=8, H=4, C=64, vocabulary_multiple=128)
    parameters = Parameters(gpt2.build(config, B=1).parameters)
    gpt2.initialise(parameters, config, seed=3)
    std = {name: float(view.std()) for name, view in parameters.items()}
    assert std["h.3.mlp.c_fc.weight"] == pytest.approx(0.02, rel=0.03)
    assert std["h.3.mlp.c_proj.weight"] == pytest.approx(0.02 / 4, rel=0.03)
    assert std["h.3.attn.c_proj.weight"] == pytest.approx(0.02 / 4, rel=0.05)
    assert (parameters["ln_f.weight"] == 1).all()
    assert not parameters["h.3.mlp.c_fc.bias"].any()
    assert not parameters["wte.weight"][300:].any()
    again = Parameters(parameters.specs)
    gpt2.initialise(again, config, seed=3)
    np.testing.assert_array_equal(again.master, parameters.master)


@pytest.mark.parametrize(("sizes", "error", "message"), [
    ({"C": 30}, ValueError, "C is 30, needs to be divisible by H = 4; try C = 32"),
    ({"L": 0}, ValueError, "L is 0, needs to be at least 1"),
    ({"T": 2.5}, TypeError, r"T is 2\.5, needs to be an integer"),
    ({"V": True}, TypeError, "V is True, needs to be an integer"),
    ({"dropout": 1.0}, ValueError, r"dropout is 1\.0, needs to be at least 0 and below 1"),
    ({"dropout": "0.1"}, TypeError, "dropout is '0.1', needs to be a number"),
])
def test_impossible_sizes_are_refused(sizes, error, message):
    with pytest.raises(error, match=message):
        gpt2.Config(**{"V": 16, "C": 32, "H": 4, **sizes})


@pytest.mark.parametrize(("rows", "error", "message"), [
    (0, ValueError, "is 0, needs to be at least 1"), (-1, ValueError, "is -1, needs to be at least 1"),
    (2.5, TypeError, r"is 2\.5, needs to be an integer"), ("8", TypeError, "is '8', needs to be an integer"),
    (True, TypeError, "is True, needs to be an integer"),
])
@pytest.mark.parametrize("name", ["B", "logits_rows"])
def test_a_batch_and_its_logits_need_a_row(name, rows, error, message):
    with pytest.raises(error, match=f"^{name} {message}"):
        gpt2.build(gpt2.Config(), **{"B": 2, name: rows})


@pytest.mark.parametrize(("seed", "error", "message"), [
    (1.5, TypeError, r"seed is 1\.5, needs to be an integer"), ("1", TypeError, "seed is '1'"),
    (None, TypeError, "seed is None"), (-1, ValueError, "seed is -1, needs to be at least 0"),
    (2**64, ValueError, "seed is 18446744073709551616, needs to be at most 18446744073709551615"),
])
def test_seeds_are_whole_numbers_of_64_bits(seed, error, message):
    config = gpt2.Config(V=16, C=32, H=4, dropout=0.1)
    with pytest.raises(error, match=message):
        gpt2.build(config, B=1, seed=seed)
    parameters = Parameters(gpt2.build(config, B=1, seed=2**64 - 1).parameters)
    with pytest.raises(error, match=message):
        gpt2.initialise(parameters, config, seed=seed)
    assert not parameters.master.any()


@pytest.mark.parametrize(("std", "error"), [
    (-1, ValueError), (np.nan, ValueError), (np.inf, ValueError), ("a", TypeError), (None, TypeError)])
def test_a_std_is_no_less_than_nothing(std, error):
    config = gpt2.Config(V=16, C=32, H=4)
    parameters = Parameters(gpt2.build(config, B=1).parameters)
    with pytest.raises(error, match="^std is .*, needs to be"):
        gpt2.initialise(parameters, config, seed=0, std=std)
    assert not parameters.master.any()


def test_no_more_rows_of_logits_than_there_are():
    graph = gpt2.build(gpt2.Config(V=16, T=8, C=32), B=2, logits_rows=1000)
    assert graph.shape("loss.logits") == (16, 16)


def test_weights_are_drawn_only_for_the_config_they_belong_to():
    parameters = Parameters(gpt2.build(gpt2.Config(V=16, C=32, H=4), B=1).parameters)
    with pytest.raises(ValueError, match=r"'wte\.weight' of shape \(16, 32\), needs \(8, 32\)"):
        gpt2.initialise(parameters, gpt2.Config(V=8, C=32, H=4), seed=0)


@pytest.mark.parametrize(("p", "logits_rows"), [(0.0, None), (0.2, None), (0.0, 3)])
def test_every_gradient_of_two_layers_by_finite_differences(p, logits_rows):
    """Float64, policy full, an ignored target, repeated tokens; biases and norms away from 0 and 1."""
    config = gpt2.Config(V=7, T=5, L=2, H=2, C=8, dropout=p)
    graph = gpt2.build(config, B=2, logits_rows=logits_rows)
    parameters = Parameters(graph.parameters, dtype="float64")
    generator = np.random.default_rng(0)
    parameters.master[...] = 0
    for name, view in parameters.items():
        mean = 1.0 if view.ndim == 1 and name.endswith("weight") else 0.0
        view[...] = generator.normal(mean, 0.3, view.shape)
    engine = Engine(graph, parameters, policy="full")
    tokens = np.array([[0, 1, 1, 6, 2], [3, 3, 3, 5, 4]])
    targets = np.array([[1, 1, 6, 2, -100], [3, 3, 5, 4, 0]])

    def loss():
        engine.step = 0
        return float(engine.forward_backward(tokens, targets))

    parameters.zero_grad()
    loss()
    gradients = {name: view.copy() for name, view in parameters.grad.items()}
    worst = gradcheck.check(loss, dict(parameters), gradients, tolerance=1e-6, samples=8)
    assert worst.error <= 1e-6


@pytest.fixture
def transformers_pair():
    """A tiny random GPT2LMHeadModel in float64 and an engine with the same weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    theirs_config = transformers.GPT2Config(
        vocab_size=29, n_positions=12, n_embd=24, n_layer=2, n_head=3,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(theirs_config).double()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.1 * torch.randn_like(p))
    config = gpt2.Config(V=29, T=12, L=2, H=3, C=24)
    graph = gpt2.build(config, B=3)
    parameters = Parameters(graph.parameters, dtype="float64")
    for name in parameters:
        parameters.write(name, ours(theirs.transformer.get_parameter(name).detach()))
    return torch, theirs, Engine(graph, parameters, policy="selective")


def ours(weight):
    """transformers keeps the matrices of a block as (C_in, C_out)."""
    return weight.numpy() if weight.ndim == 1 or weight.shape[0] in (29, 12) else weight.numpy().T


def test_logits_loss_and_every_gradient_equal_those_of_transformers(transformers_pair):
    torch, theirs, engine = transformers_pair
    generator = np.random.default_rng(0)
    tokens = generator.integers(0, 29, (3, 12))
    labels = tokens.copy()
    labels[0, 4:] = -100
    output = theirs(input_ids=torch.tensor(tokens), labels=torch.tensor(labels))
    rounded_loss = output.loss.item()  # in float32, whatever the model's dtype
    their_loss = torch.nn.functional.cross_entropy(
        output.logits[:, :-1].flatten(0, 1), torch.tensor(labels)[:, 1:].flatten())
    their_loss.backward()
    np.testing.assert_allclose(engine.logits(tokens), output.logits.detach().numpy(), rtol=1e-10, atol=1e-12)
    targets = np.full_like(labels, -100)
    targets[:, :-1] = labels[:, 1:]  # transformers shifts inside
    loss = engine.forward_backward(tokens, targets)
    assert float(loss) == pytest.approx(their_loss.item(), rel=1e-12)
    assert float(loss) == pytest.approx(rounded_loss, rel=1e-6)
    for name, view in engine.parameters.grad.items():
        expected = ours(theirs.transformer.get_parameter(name).grad)
        np.testing.assert_allclose(view, expected, rtol=1e-8, atol=1e-12, err_msg=name)
