"""The loss scale's warnings, state and arguments; its moves are in tests/kernels/test_loss_scale.py."""

import math

import numpy as np
import pytest

from llmlab.optim import LossScale


def run(scale, outcomes):
    path = []
    for good in outcomes:
        scale.update(np.array([1.0 if good else math.inf], np.float32))
        path.append(float(scale.scale[0]))
    return path


def test_steps_refused_at_the_minimum_are_told_once():
    scale = LossScale(initial=1.0)
    with pytest.warns(RuntimeWarning, match=r"1 step\(s\) .* at the smallest loss scale \(1\)"):
        run(scale, [False])
    scale.warn_if_stuck()  # told already: warnings are errors here
    run(scale, [True])


def test_dtypes_and_buffers_stay():
    scale = LossScale()
    before = scale.scale, scale.inverse, scale.good
    scale.update(np.array([1.0]))
    assert (scale.scale.dtype, scale.inverse.dtype, scale.good.dtype) == (np.float32, np.float32, np.int32)
    assert all(a is b for a, b in zip(before, (scale.scale, scale.inverse, scale.good)))


def test_state_round_trip():
    one, two = LossScale(interval=3), LossScale(interval=3)
    run(one, [True, False, True, True])
    two.load({n: a.copy() for n, a in one.state.items()})
    assert run(one, [True, True]) == run(two, [True, True])
    assert one.inverse == two.inverse


@pytest.mark.parametrize(("name", "value", "error"), [
    ("scale", np.ones(2), ValueError), ("scale", np.array([math.nan]), ValueError),
    ("scale", np.array([2.0**90]), ValueError), ("scale", np.array(["8"]), TypeError),
    ("good", np.array([-5]), ValueError), ("good", np.array([2**31 - 1]), ValueError),
    ("good", np.array([2.5]), TypeError), ("good", np.zeros(2, int), ValueError), ("good", None, ValueError),
], ids=str)
def test_a_damaged_state_is_refused_and_overwrites_nothing(name, value, error):
    mine = LossScale()
    if value is not None and value.dtype.kind == mine.state[name].dtype.kind:
        value = value.astype(mine.state[name].dtype)
    state = {"scale": np.full(1, 8, np.float32), "good": np.ones(1, np.int32), name: value}
    with pytest.raises(error, match=f"^state '{name}' has .*, needs"):
        mine.load(state)
    assert (mine.scale, mine.good) == (65536, 0)


def test_the_longest_interval_does_not_wrap():
    scale = LossScale(initial=4.0, interval=2**31 - 1)
    scale.load({"scale": scale.scale.copy(), "good": np.full(1, 2**31 - 2, np.int32)})
    assert run(scale, [True, True]) == [8, 8]
    assert scale.good == 1


@pytest.mark.parametrize(("options", "message"), [
    ({"initial": 0.0}, "initial is 0.0"), ({"backoff": 1.0}, "backoff is 1.0"),
    ({"interval": 0}, "interval is 0"),
    ({"interval": 2**31}, "interval is 2147483648, needs to be at most 2147483647"),
    ({"device": "tpu"}, "device is 'tpu'"),
    ({"initial": math.inf}, "initial is inf"), ({"device": "cuda"}, "device is 'cuda'"),
])
def test_bad_arguments_are_named(options, message, monkeypatch):
    monkeypatch.setattr("llmlab.optim.loss_scaling.gpu_available", lambda: False)
    with pytest.raises(ValueError, match=message):
        LossScale(**options)


@pytest.mark.parametrize("norm", [1.0, np.float32(1), np.ones(2), np.ones(0)], ids=repr)
def test_a_norm_is_an_array_of_one_element(norm):
    scale = LossScale(interval=1)
    with pytest.raises(ValueError, match="norm is .*, needs to be an array of one element"):
        scale.update(norm)
    assert scale.scale == 65536
