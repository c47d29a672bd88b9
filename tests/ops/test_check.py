"""The guard at the ops' doors: what no shape, number or scalar gets past."""

from contextlib import nullcontext

import numpy as np
import pytest

from llmlab import ops
from llmlab.kernels import emulated
from llmlab.ops.check import between, scalar


@pytest.mark.parametrize("emulate", [False, True], ids=["text", "emulated"])
@pytest.mark.parametrize(("function", "shapes", "message"), [
    (ops.softmax.forward, {"x": (2, 0)}, "^x .* C at least 1"),
    (ops.softmax.backward, {"dy": (2, 0), "y": (2, 0)}, "^dy .* C at least 1"),
    (ops.attention.forward, {"qkv": (1, 2, 0), "heads": 2}, "^qkv .* 3C at least 1"),
    (ops.linear.forward, {"x": (2, 0), "weight": (3, 0)}, "^x .* C at least 1"),
    (ops.linear.forward, {"x": (2, 3), "weight": (0, 3)}, "^weight .* C_out at least 1"),
    (ops.linear.backward, {"dy": (2, 0), "x": (2, 3), "weight": (0, 3)}, "^dy .* C_out at least 1"),
    (ops.layernorm.forward, {"x": (2, 0), "weight": (0,), "bias": (0,)}, "^x .* C at least 1"),
    (ops.gelu.forward, {"x": (2, 0)}, "^x .* C at least 1"),
    (ops.embedding.forward, {"tokens": (2, 3), "wte": (5, 0), "wpe": (3, 0)}, "^wte .* C at least 1"),
    (ops.cross_entropy.forward, {"logits": (2, 0), "targets": (2,)}, "^logits .* V at least 1"),
    (ops.cross_entropy.forward_backward, {"logits": (2, 0), "targets": (2,)}, "^logits .* V at least 1"),
    (ops.linear_cross_entropy.forward, {"x": (2, 3), "weight": (0, 3), "targets": (2,)},
     "^weight .* V at least 1"),
])
def test_an_empty_axis_of_features_is_refused_by_name(function, shapes, message, emulate):
    """A softmax, a norm or a product of nothing has no value; rows may be empty."""
    arguments = {
        name: np.zeros(shape, np.int64 if name in ("tokens", "targets") else np.float32)
        if isinstance(shape, tuple) else shape for name, shape in shapes.items()
    }
    with emulated() if emulate else nullcontext(), pytest.raises(ValueError, match=message):
        function(**arguments)


@pytest.mark.parametrize(("value", "error", "message"), [
    ([0.5], TypeError, r"p is \[0\.5\], needs to be a number"),
    (np.ones(2), ValueError, r"p has shape \(2,\), needs to be a number, or an array of one element"),
    (np.ones(0), ValueError, r"p has shape \(0,\)"),
    ("a", TypeError, "p is 'a', needs to be a number"),
    (None, TypeError, "p is None"),
    (1j, TypeError, "p is 1j"),
    (np.nan, ValueError, "p is nan"),
    (np.full(1, np.nan), ValueError, r"p is \[nan\]"),
    (np.inf, ValueError, "p is inf"),
    (1e40, ValueError, r"p is 1e\+40, needs to be at least 0 and below 3\.40282e\+38"),
    (-1e-9, ValueError, "p is -1e-09, needs to be at least 0"),
])
def test_a_scalar_is_one_number_that_float32_holds(value, error, message):
    with pytest.raises(error, match=message):
        scalar("p", value, 0)


@pytest.mark.parametrize("value", [0, 0.5, 10**30, np.float32(2), np.ones(1), np.ones(())], ids=repr)
def test_a_scalar_may_be_of_any_kind(value):
    scalar("p", value, 0)
    scalar("p", -1.0)


@pytest.mark.parametrize("value", [np.ones(2), "a", None])
def test_several_numbers_are_not_between(value):
    with pytest.raises(TypeError, match="^p is .* needs to be a number; None does too"):
        between("p", value, 0, repair="None does too")


def test_infinity_is_said_to_be_the_fault():
    with pytest.raises(ValueError, match="p is inf, needs to be above 0 and finite; None means all"):
        between("p", np.inf, 0, repair="None means all")
