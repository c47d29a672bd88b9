"""The checker itself: what is right passes, what is wrong is found and named."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from llmlab.gradcheck import (
    GradientError,
    central_difference,
    check,
    check_op,
    dot_product_test,
    relative_error,
)
from llmlab.ops import layernorm, linear


def cubes(x):
    return {"x": x}, {"x": 3 * x**2}, lambda: float((x**3).sum())


@pytest.mark.parametrize("size", [0.1, 1.0, 1e3])
def test_step_fits_the_size_of_the_element(size):
    inputs, gradients, function = cubes(size * np.linspace(0.5, 2, 7))
    assert check(function, inputs, gradients, tolerance=1e-6).error < 1e-6
    assert dot_product_test(function, inputs, gradients, tolerance=1e-5) < 1e-5


def test_the_worst_element_is_named():
    inputs, gradients, function = cubes(np.linspace(0.5, 2, 12).reshape(3, 4))
    gradients["x"][1, 2] *= 1.001
    gradients["x"][2, 0] *= 1 + 1e-5
    with pytest.raises(GradientError, match=r"dx\[1, 2\] is .* relative error 8\.1e-04 > 1\.0e-06"):
        check(function, inputs, gradients)
    with pytest.raises(GradientError, match="along a random direction"):
        dot_product_test(function, inputs, gradients)


def test_nan_is_an_error():
    inputs, gradients, function = cubes(np.ones(3))
    gradients["x"][1] = np.nan
    with pytest.raises(GradientError, match=r"dx\[1\] is nan"):
        check(function, inputs, gradients)
    with pytest.raises(GradientError):
        dot_product_test(function, inputs, gradients)
    assert relative_error(np.array([np.nan]), np.ones(1)) == np.inf


def test_inputs_are_put_back_even_after_an_error():
    x = np.array([1.0, 2.0])

    def breaks():
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        central_difference(breaks, x, (1,))
    with pytest.raises(RuntimeError):
        dot_product_test(breaks, {"x": x}, {"x": x})
    assert x.tolist() == [1, 2]


def test_samples_are_a_part_of_the_elements():
    calls = []
    x = np.ones(100)
    check(lambda: calls.append(1) or float(x.sum()), {"x": x}, {"x": np.ones(100)}, samples=5)
    assert len(calls) == 10


def test_a_zero_gradient_passes_and_a_spurious_one_does_not():
    x, y = np.ones(3), np.ones(2)
    function = lambda: float(x.sum())  # noqa: E731 - y is not in it
    check(function, {"x": x, "y": y}, {"x": np.ones(3), "y": np.zeros(2)})
    with pytest.raises(GradientError, match=r"dy\[0\]"):
        check(function, {"x": x, "y": y}, {"x": np.ones(3), "y": np.full(2, 1e-3)})


def test_what_cannot_be_checked_is_said():
    with pytest.raises(TypeError, match="input x is float32, needs float64"):
        check(lambda: 0.0, {"x": np.ones(1, np.float32)}, {"x": np.ones(1)})
    with pytest.raises(ValueError, match="gradients has no 'x'"):
        check(lambda: 0.0, {"x": np.ones(1)}, {"y": np.ones(1)})
    with pytest.raises(ValueError, match="gradient of x has shape"):
        check(lambda: 0.0, {"x": np.ones(1)}, {"x": np.ones(2)})
    with pytest.raises(TypeError, match="input x is a list, needs to be the NumPy array"):
        check(lambda: 0.0, {"x": [1.0]}, {"x": np.ones(1)})


def test_what_would_go_unchecked_is_an_error():
    x = np.ones(2)
    for door in (check, dot_product_test):
        with pytest.raises(ValueError, match="gradients has 'y', but inputs has not"):
            door(lambda: float(x @ x), {"x": x}, {"x": 2 * x, "y": x})
        with pytest.raises(ValueError, match="inputs is empty"):
            door(lambda: 0.0, {}, {})
    with pytest.raises(ValueError, match="samples is 0, needs to be at least 1"):
        check(lambda: float(x @ x), {"x": x}, {"x": 9 * x}, samples=0)


def _wrong(op, spoil):
    def backward(*arguments, **named):
        return spoil(*op.backward(*arguments, **named))

    backward.__signature__ = inspect.signature(op.backward)
    return SimpleNamespace(forward=op.forward, backward=backward)


def test_an_op_with_a_wrong_gradient_is_found():
    generator = np.random.default_rng(0)
    arguments = {"x": generator.standard_normal((3, 4)), "weight": np.ones(4), "bias": np.zeros(4)}
    forgets_the_mean = _wrong(layernorm, lambda dx, dweight, dbias: (dx + 1e-3, dweight, dbias))
    with pytest.raises(GradientError):
        check_op(forgets_the_mean, arguments)
    swaps = _wrong(linear, lambda dx, dweight, dbias: (dx, dweight.T, dbias))
    with pytest.raises(GradientError):
        check_op(swaps, {"x": arguments["x"], "weight": generator.standard_normal((4, 4))})
