"""AdamW against PyTorch, its golden trajectory, and clipping from zero to infinity."""

import math
from contextlib import nullcontext

import numpy as np
import pytest

from llmlab.arrays import bfloat16, float16
from llmlab.graph import Parameter
from llmlab.kernels import emulated
from llmlab.optim import AdamW
from llmlab.optim.adamw import step as adamw_step
from llmlab.parameters import Parameters


def parameters(shapes=None, dtype="float32"):
    shapes = shapes or {"w": (70, 33), "b": (33,)}
    return Parameters({n: Parameter(n, s, decayed=len(s) > 1) for n, s in shapes.items()}, dtype=dtype)


def step(optimizer, gradients, lr=1e-2, inverse_scale=1.0):
    optimizer.params.zero_grad()
    for name, gradient in gradients.items():
        optimizer.params.grad[name][...] = gradient
    return float(optimizer.step(lr, inverse_scale)[0])


def one_update(p, g, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, clip=math.inf):
    p, g = np.array(p), np.array(g)
    count = np.zeros(1, np.int64)
    m, v = np.zeros_like(p), np.zeros_like(p)
    adamw_step(p, g, m, v, None, count, lr, 1.0, *betas, eps, weight_decay, clip, len(p))
    return p


def test_golden_trajectory():
    p = np.ones(1)
    m, v, count = np.zeros(1), np.zeros(1), np.zeros(1, np.int64)
    path = []
    for gradient in (0.5, -0.25, 0.0):
        g = np.array([gradient])
        adamw_step(p, g, m, v, None, count, 1e-2, 1.0, 0.9, 0.999, 1e-8, 0.1, math.inf, 1)
        path.append(p[0])
    np.testing.assert_allclose(path, [0.9890000002, 0.9853476299, 0.9823034893], rtol=0, atol=1e-10)
    np.testing.assert_allclose([m[0], v[0]], [0.018, 3.119377500e-4], rtol=1e-9)
    assert count[0] == 3


def test_eps_stands_outside_the_root():
    np.testing.assert_allclose(one_update([0.0], [1e-8]), [-5.0e-3], rtol=1e-6)


def test_each_optimizer_counts_its_own_updates():
    first, second = AdamW(parameters({"w": (1,)})), AdamW(parameters({"w": (1,)}))
    step(first, {"w": 0.5})
    step(first, {"w": 0.5})
    step(second, {"w": 0.5})
    np.testing.assert_allclose(second.params["w"], -1e-2, rtol=1e-6)


def test_hundred_steps_equal_torch():
    import torch

    generator = np.random.default_rng(0)
    params = parameters()
    start = {n: generator.standard_normal(v.shape).astype(np.float32) for n, v in params.items()}
    for name, value in start.items():
        params.write(name, value)
    theirs = {n: torch.nn.Parameter(torch.from_numpy(a.copy())) for n, a in start.items()}
    optimizer = AdamW(params, betas=(0.9, 0.95), weight_decay=0.1, clip=1.0)
    reference = torch.optim.AdamW([{"params": [theirs["w"]], "weight_decay": 0.1},
                                   {"params": [theirs["b"]], "weight_decay": 0.0}], betas=(0.9, 0.95))
    for k in range(100):
        lr = 1e-2 * (1 + math.sin(k))
        size = 10 ** generator.uniform(-3, 1)  # some steps are clipped and some are not
        gradients = {n: (size * generator.standard_normal(a.shape) / 50).astype(np.float32)
                     for n, a in start.items()}
        for name, parameter in theirs.items():
            parameter.grad = torch.from_numpy(gradients[name].copy())
        norm = torch.nn.utils.clip_grad_norm_(theirs.values(), 1.0)
        for group in reference.param_groups:
            group["lr"] = lr
        reference.step()
        assert step(optimizer, gradients, lr) == pytest.approx(float(norm), rel=1e-6)
    for name, parameter in theirs.items():
        np.testing.assert_allclose(params[name], parameter.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=lambda d: d.name)
def test_compute_copy_is_the_master_rounded(dtype):
    params = parameters(dtype=dtype.name)
    optimizer = AdamW(params)
    step(optimizer, {n: np.random.default_rng(0).standard_normal(v.shape) for n, v in params.items()})
    assert params.master.any()
    np.testing.assert_array_equal(params.compute, params.master.astype(dtype))


def test_decay_stops_at_decay_end():
    params = parameters()
    params.master[...] = 1
    optimizer = AdamW(params, weight_decay=0.5)
    step(optimizer, {"w": 0.0}, lr=0.1)
    np.testing.assert_allclose(params["w"], 0.95)
    np.testing.assert_array_equal(params["b"], 1)


def test_blocks_join_without_a_seam():
    """The same numbers in one element and in an array of many blocks."""
    many = one_update(np.full(70_001, 0.5), np.full(70_001, 0.25), weight_decay=0.1)
    np.testing.assert_array_equal(many, one_update([0.5], [0.25], weight_decay=0.1)[0])


# Clipping: what arrives at the moments is (1 - β₁) times the clipped gradient.


def clipped(gradients, dtype="float32", clip=1.0, scale=1.0):
    params = parameters({n: np.shape(g) for n, g in gradients.items()})
    optimizer = AdamW(params, betas=(0.5, 0.5), clip=clip)
    norm = step(optimizer, {n: np.multiply(g, scale, dtype=np.float32) for n, g in gradients.items()},
                inverse_scale=1 / scale)
    return norm, {n: 2 * optimizer.m[params.layout[n][0]:][:np.size(g)] for n, g in gradients.items()}


@pytest.mark.parametrize("scale", [1.0, 65536.0], ids=["unscaled", "after unscaling"])
def test_clipping_acts_on_the_whole_unscaled_gradient(scale):
    norm, g = clipped({"a": [3.0], "b": [4.0]}, scale=scale)
    assert norm == 5
    np.testing.assert_allclose([g["a"][0], g["b"][0]], [0.6, 0.8], rtol=1e-6)


def test_squares_do_not_overflow():
    norm, g = clipped({"a": np.array([300], np.float16)})
    assert (norm, g["a"].tolist()) == (300, [1.0])
    norm, g = clipped({"a": np.array([1e20, 1e20], np.float32)})
    assert norm == pytest.approx(1.41421e20, rel=1e-5)
    np.testing.assert_allclose(g["a"], math.sqrt(0.5), rtol=1e-6)
    assert clipped({"a": np.array([1e-30], np.float32)})[0] == pytest.approx(1e-30)


def test_a_zero_gradient_stays_zero():
    norm, g = clipped({"a": [0.0, 0.0]})
    assert (norm, g["a"].tolist()) == (0, [0, 0])


def test_a_short_gradient_stays_as_it_is():
    _, g = clipped({"a": np.array([0.3, 0.4], np.float32)})
    np.testing.assert_array_equal(g["a"], np.array([0.3, 0.4], np.float32))


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_gradient_that_is_not_finite_changes_nothing(bad):
    params = parameters({"w": (2, 3)}, dtype="bfloat16")
    params.master[...] = 1
    params.refresh()
    optimizer = AdamW(params)
    step(optimizer, {"w": 1.0})
    before = [a.copy() for a in (params.master, params.compute, optimizer.m, optimizer.v, optimizer.updates)]
    gradient = np.ones((2, 3))
    gradient[1, 2] = bad
    assert not math.isfinite(step(optimizer, {"w": gradient}))
    after = (params.master, params.compute, optimizer.m, optimizer.v, optimizer.updates)
    for a, b in zip(before, after):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("number", [np.float64, np.float32, float, lambda x: np.full(1, x, np.float32)],
                         ids=["float64", "float32", "float", "array"])
def test_scalars_of_any_kind_promote_nothing(number):
    params = parameters(dtype="bfloat16")
    optimizer = AdamW(params, betas=(np.float64(0.9), np.float64(0.95)), eps=np.float64(1e-8))
    expected = AdamW(parameters(dtype="bfloat16"))
    gradient = {"w": 0.5, "b": 0.25}
    step(optimizer, gradient, number(0.5), number(0.25))
    step(expected, gradient, 0.5, 0.25)
    assert params.master.dtype == optimizer.m.dtype == optimizer.v.dtype == np.float32
    assert params.compute.dtype == bfloat16
    np.testing.assert_array_equal(params.master, expected.params.master)


def test_state_round_trip():
    generator = np.random.default_rng(0)
    gradients = [{"w": generator.standard_normal((70, 33)), "b": generator.standard_normal(33)}
                 for _ in range(4)]
    one = AdamW(parameters())
    for g in gradients:
        step(one, g)
    two = AdamW(parameters())
    for g in gradients[:2]:
        step(two, g)
    resumed = AdamW(parameters())
    resumed.load({n: a.copy() for n, a in two.state.items()})
    resumed.params.master[...] = two.params.master
    for g in gradients[2:]:
        step(resumed, g)
    np.testing.assert_array_equal(resumed.params.master, one.params.master)
    assert resumed.updates[0] == 4


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"betas\[1\] is 1"):
        AdamW(parameters(), betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="clip is 0"):
        AdamW(parameters(), clip=0)
    with pytest.raises(ValueError, match="lr is nan"):
        AdamW(parameters()).step(math.nan)
    with pytest.raises(ValueError, match="another size"):
        AdamW(parameters()).load(AdamW(parameters({"w": (200, 2)})).state)


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"betas": 0.9}, TypeError, "betas is 0.9, needs to be two numbers"),
    ({"betas": None}, TypeError, "betas is None"),
    ({"betas": (0.9,)}, ValueError, r"betas is \(0\.9,\), needs to be two numbers, such as"),
    ({"betas": (0.9, 0.95, 0.99)}, ValueError, "betas is .*0.99.* needs to be two numbers"),
    ({"betas": (0.9, "a")}, TypeError, r"betas\[1\] is 'a', needs to be a number"),
    ({"clip": math.inf}, ValueError, "clip is inf, needs to be above 0 and finite; None means no clipping"),
    ({"clip": -1}, ValueError, "clip is -1, needs to be above 0 .*None"),
])
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        AdamW(parameters(), **options)


@pytest.mark.parametrize(("lr", "error", "message"), [
    (1e40, ValueError, r"lr is 1e\+40, needs to be at least 0 and below 3\.4"),
    (np.array([1e40]), ValueError, r"lr is \[1\.e\+40\]"),
    (np.full(1, math.nan), ValueError, r"lr is \[nan\]"),
    (np.ones(2), ValueError, r"lr has shape \(2,\), needs to be a number, or an array of one element"),
    ([0.1], TypeError, r"lr is \[0\.1\], needs to be a number"),
])
@pytest.mark.parametrize("emulate", [False, True], ids=["text", "emulated"])
def test_a_rate_that_no_master_could_take_moves_nothing(lr, error, message, emulate):
    optimizer = AdamW(parameters())
    optimizer.params.grad["w"][...] = 1
    with emulated() if emulate else nullcontext():
        with pytest.raises(error, match=message):
            optimizer.step(lr)
        with pytest.raises(error, match=message.replace("lr", "inverse_scale")):
            optimizer.step(0.1, lr)
    assert not optimizer.params.master.any()
    assert optimizer.updates == 0


@pytest.mark.parametrize(("name", "value", "error", "message"), [
    ("m", math.nan, ValueError, r"state 'm' has 1 element\(s\) that no run has, needs finite ones; it is"),
    ("m", -math.inf, ValueError, "state 'm' has 1 element"),
    ("v", math.inf, ValueError, r"state 'v' has 1 element\(s\) .* finite ones in \[0, inf\]"),
    ("v", -1e-9, ValueError, "state 'v' has 1 element"),
    ("updates", -1, ValueError, "state 'updates' has 1 element"),
    ("updates", np.array([2.7]), TypeError, "state 'updates' has dtype float64, needs int64"),
    ("m", np.zeros(2432), TypeError, "state 'm' has dtype float64, needs float32"),
    ("m", [0.0], ValueError, "state 'm' has shape None"),
])
def test_a_damaged_state_is_refused_and_overwrites_nothing(name, value, error, message):
    optimizer = AdamW(parameters())
    state = {n: np.ones_like(a) for n, a in optimizer.state.items()}
    if isinstance(value, int | float):
        state[name][0] = value
    else:
        state[name] = value
    with pytest.raises(error, match=message):
        optimizer.load(state)
    assert not any(array.any() for array in optimizer.state.values())


@pytest.mark.parametrize(("name", "value", "error"), [
    ("updates", 0, TypeError), ("updates", np.zeros(1), TypeError), ("updates", None, TypeError),
    ("norm", np.ones(2, np.float32), ValueError), ("norm", np.ones(1), TypeError),
    ("decay_end", -1, ValueError), ("decay_end", 5, ValueError), ("decay_end", 1.5, TypeError),
    ("compute", np.ones(3), ValueError), ("compute", [1.0], ValueError), ("master", None, TypeError),
    ("clip", None, TypeError), ("clip", 0, ValueError), ("lr", None, TypeError), ("lr", -1, ValueError),
])
def test_a_step_refuses_what_it_cannot_use(name, value, error):
    arguments = {
        **{n: np.ones(4, np.float32) for n in ("master", "grad", "m", "v")}, "compute": None,
        "norm": np.ones(1, np.float32), "updates": np.zeros(1, np.int64), "lr": 0.1, "inverse_scale": 1.0,
        "beta1": 0.9, "beta2": 0.9, "eps": 1e-8, "weight_decay": 0.1, "clip": math.inf, "decay_end": 4,
    }
    adamw_step(**arguments)
    before = arguments["master"].copy()
    with pytest.raises(error, match=f"^{name} "):
        adamw_step(**{**arguments, name: value})
    np.testing.assert_array_equal(arguments["master"], before)
