"""The loss scale as a state machine."""

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


def test_grows_after_good_steps_in_a_row_and_backs_off():
    scale = LossScale(initial=65536, interval=2)
    good, bad = True, False
    path = run(scale, [good, good, bad, good, bad, good, good])
    assert path == [65536, 131072, 65536, 65536, 32768, 32768, 65536]
    assert float(scale.inverse[0]) == 1 / 65536


def test_counts_again_after_it_has_grown():
    assert run(LossScale(initial=1.0, interval=2), [True] * 5) == [1, 2, 2, 4, 4]


def test_stays_above_its_floor_and_says_so():
    scale = LossScale(initial=2.0, minimum=0.5)
    assert run(scale, [False, False]) == [1.0, 0.5]
    with pytest.warns(RuntimeWarning, match="at the smallest loss scale"):
        run(scale, [False])
    with pytest.warns(RuntimeWarning):
        assert set(run(scale, [False] * 200)) == {0.5}


def test_stays_below_its_ceiling():
    scale = LossScale(initial=65536, interval=1)
    assert run(scale, [True] * 200)[-1] == 2.0**24
    highest = LossScale(initial=65536, interval=1, maximum=2.0**96)
    assert math.isfinite(run(highest, [True] * 200)[-1])
    assert float(highest.inverse[0]) > 0


def test_nan_is_not_good():
    scale = LossScale(initial=4.0)
    scale.update(np.array([math.nan], np.float32))
    assert float(scale.scale[0]) == 2.0


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


@pytest.mark.parametrize(("name", "value"), [
    ("scale", np.ones(2)), ("scale", np.array([math.nan])), ("scale", np.array([2.0**90])),
    ("scale", np.array(["8"])), ("good", np.array([-5])), ("good", np.array([2.5])),
    ("good", np.array([2**31])), ("good", np.zeros(2, int)), ("good", None),
], ids=str)
def test_a_damaged_state_is_refused(name, value):
    mine = LossScale()
    state = {"scale": np.full(1, 8.0), "good": np.ones(1, int), name: value}
    with pytest.raises(ValueError, match=f"^state '{name}' is .*, needs one"):
        mine.load(state)
    assert (mine.scale, mine.good) == (65536, 0)


@pytest.mark.parametrize(("options", "message"), [
    ({"initial": 0.0}, "initial is 0.0"), ({"backoff": 1.0}, "backoff is 1.0"),
    ({"interval": 0}, "interval is 0"), ({"device": "tpu"}, "device is 'tpu'"),
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
