"""Is this gradient right? Ask the function itself, by finite differences.

A derivative is a limit of quotients, so a quotient with a small step is evidence that no algebra can fake.
The central one, (f(x + h) - f(x - h)) / 2h, errs by f'''h²/6 from the curve and by about ε|f|/h from
rounding; both are small in float64 at h = ε^(1/3), about 6e-6, which leaves some ten digits to compare. In
float32 only two or three are left: check in float64, and compare float32 with float64.

`check` does this for every element. `dot_product_test` needs two evaluations for any number of elements:
for a random direction v, the derivative along v must equal gradient · v. `check_op` does both for an op,
whose signatures say what is an input, an output and a gradient.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType

import numpy as np

__all__ = [
    "STEP", "GradientError", "Worst", "central_difference", "check", "check_op", "dot_product_test",
    "relative_error",
]

STEP = float(np.finfo(np.float64).eps) ** (1 / 3)
"""The step at which the two errors of a central difference balance, for arguments near 1."""


class GradientError(AssertionError):
    """A gradient differs from the differences of its function; the message names the worst element."""


@dataclass(frozen=True)
class Worst:
    """The element where gradient and difference quotient disagree most."""

    name: str
    index: tuple[int, ...]
    gradient: float
    difference: float
    error: float

    def __str__(self) -> str:
        place = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return (f"d{self.name}{place} is {self.gradient:.10g}, its difference quotient "
                f"{self.difference:.10g}: relative error {self.error:.1e}")


def relative_error(value: np.ndarray, reference: np.ndarray) -> float:
    """The largest deviation of `value`, in units of the reference's root mean square (inf if any is NaN).

    >>> relative_error(np.array([1.0, 2.002]), np.array([1.0, 2.0])) < 2e-3
    True
    """
    reference = np.asarray(reference, np.float64)
    if reference.size == 0:
        return 0.0
    deviation = np.abs(np.asarray(value).astype(np.float64) - reference).max()
    scale = math.sqrt(np.mean(np.square(reference)))
    if math.isnan(deviation):
        return math.inf
    return float(deviation / scale) if scale else (math.inf if deviation else 0.0)


def central_difference(function: Callable[[], float], x: np.ndarray, index: tuple[int, ...]) -> float:
    """The derivative of `function()` by x[index], which is moved a step to both sides and put back.

    The step is `STEP` times the element's size where that exceeds 1.

    >>> x = np.array([3.0])
    >>> round(central_difference(lambda: float(x[0] ** 2), x, (0,)), 8)
    6.0
    """
    value = x[index]
    step = STEP * max(1.0, abs(float(value)))
    try:
        x[index] = value + step
        above, up = float(x[index]), float(function())
        x[index] = value - step
        below, down = float(x[index]), float(function())
    finally:
        x[index] = value
    return (up - down) / (above - below)  # the step that was really taken


def check(
    function: Callable[[], float], inputs: Mapping[str, np.ndarray], gradients: Mapping[str, np.ndarray],
    *, tolerance: float = 1e-6, samples: int | None = None, seed: int = 0,
) -> Worst:
    """Compare the gradients of a scalar function with its central differences, element by element.

    Args:
        function: takes nothing, reads the arrays in `inputs`, returns a number.
        inputs: float64 arrays by name; each element is moved in place and put back.
        gradients: what should be the derivative of `function` by each input, under the same names.
        tolerance: the largest error allowed, relative to the element or its tensor's root mean square,
            whichever is larger (and never below 1e-5 of the largest gradient of all).
        samples: how many elements of each input to try, drawn at random; None tries all.
        seed: of that draw.

    Returns:
        The worst element and its error.

    Raises:
        GradientError: if that error exceeds `tolerance`.
        TypeError: for an input that is not float64, where differences say nothing.
        ValueError: for a gradient that is missing, belongs to no input or has another shape, and where there
            is nothing to check.

    >>> x = np.array([1.0, 2.0])
    >>> check(lambda: float((x ** 3).sum()), {"x": x}, {"x": 3 * x ** 2}).error < 1e-9
    True
    >>> check(lambda: float((x ** 3).sum()), {"x": x}, {"x": np.array([3.0, 13.0])})
    Traceback (most recent call last):
    llmlab.gradcheck.GradientError: dx[1] is 13, its difference quotient 12: relative error 7.7e-02 > 1.0e-06
    """
    generator = _generator(seed)
    if samples is not None and samples < 1:
        raise ValueError(f"samples is {samples}, needs to be at least 1, or None for all elements")
    found = {}
    for name, gradient in _checked(inputs, gradients).items():
        x = inputs[name]
        places = list(np.ndindex(x.shape))
        if samples is not None and samples < len(places):
            places = [places[i] for i in sorted(generator.choice(len(places), samples, replace=False))]
        found[name] = [(i, float(gradient[i]), central_difference(function, x, i)) for i in places]
    worst = _worst(found)
    if not worst.error <= tolerance:
        raise GradientError(f"{worst} > {tolerance:.1e}")
    return worst


def _checked(
    inputs: Mapping[str, np.ndarray], gradients: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """The gradients as arrays, one for each input; what would go unchecked is an error."""
    if not inputs:
        raise ValueError("inputs is empty, needs at least one array, or nothing is checked")
    found = {name: _gradient(name, x, gradients) for name, x in inputs.items()}
    for name in gradients:
        if name not in inputs:
            raise ValueError(f"gradients has {name!r}, but inputs has not, so it would go unchecked; "
                             f"inputs has {', '.join(inputs)}")
    return found


def _gradient(name: str, x: np.ndarray, gradients: Mapping[str, np.ndarray]) -> np.ndarray:
    if not isinstance(x, np.ndarray):
        raise TypeError(f"input {name} is a {type(x).__name__}, needs to be the NumPy array that the "
                        f"function reads, as its elements are moved in place")
    if x.dtype != np.float64:
        raise TypeError(f"input {name} is {x.dtype}, needs float64, as differences in shorter dtypes keep "
                        f"two or three digits; convert it with astype('float64')")
    if name not in gradients:
        raise ValueError(f"gradients has no {name!r}, needs one for each input; has {', '.join(gradients)}")
    if np.shape(gradients[name]) != x.shape:
        raise ValueError(f"gradient of {name} has shape {np.shape(gradients[name])}, needs {x.shape}")
    return np.asarray(gradients[name])


def _worst(found: Mapping[str, list[tuple[tuple[int, ...], float, float]]]) -> Worst:
    """The element with the largest relative error; a NaN is the worst of all."""
    scales = {name: _rms(d for _, _, d in elements) for name, elements in found.items()}
    floor = max(1e-5 * max(scales.values(), default=0.0), np.finfo(np.float64).tiny)
    worst = Worst("nothing", (), 0.0, 0.0, 0.0)
    for name, elements in found.items():
        for index, gradient, difference in elements:
            scale = max(abs(gradient), abs(difference), scales[name], floor)
            error = abs(gradient - difference) / scale
            if not error <= worst.error:
                worst = Worst(name, index, gradient, difference, math.inf if math.isnan(error) else error)
    return worst


def _rms(values: Iterable[float]) -> float:
    squares = [v * v for v in values]
    return math.sqrt(sum(squares) / len(squares)) if squares else 0.0


def dot_product_test(
    function: Callable[[], float], inputs: Mapping[str, np.ndarray], gradients: Mapping[str, np.ndarray],
    *, tolerance: float = 1e-6, seed: int = 0,
) -> float:
    """Compare the derivative along one random direction v with gradient · v: two evaluations, any size.

    Arguments, and errors raised, as in `check`. It sees an error in any element, but cannot tell which.

    Returns:
        The difference, relative to the length of the gradient (v has unit variance, so gradient · v is of
        that size).

    >>> x = np.linspace(0, 1, 1000)
    >>> dot_product_test(lambda: float(np.sin(x).sum()), {"x": x}, {"x": np.cos(x)}) < 1e-8
    True
    """
    generator = _generator(seed)
    checked = _checked(inputs, gradients)
    directions = {name: generator.standard_normal(x.shape) for name, x in inputs.items()}
    start = {name: x.copy() for name, x in inputs.items()}

    def along(t: float) -> float:
        for name, x in inputs.items():
            x[...] = start[name] + t * directions[name]
        return float(function())

    try:
        difference = (along(STEP) - along(-STEP)) / (2 * STEP)
    finally:
        for name, x in inputs.items():
            x[...] = start[name]
    product = sum(float(np.vdot(checked[name], directions[name])) for name in inputs)
    length = math.sqrt(sum(float(np.vdot(g, g)) for g in checked.values()))
    error = abs(difference - product) / max(length, float(np.finfo(np.float64).tiny))
    if not error <= tolerance:
        raise GradientError(f"along a random direction the gradient says {product:.10g}, the difference "
                            f"quotient {difference:.10g}: relative error {error:.1e} > {tolerance:.1e}")
    return error


def check_op(
    op: ModuleType, arguments: Mapping[str, object], *, tolerance: float = 1e-6, seed: int = 0,
) -> Worst:
    """Check every gradient that an op's `backward` returns, element by element and by the dot-product test.

    `arguments` are those of `op.forward`, by name, floating-point ones in float64. The outputs y that
    backward takes a dy for are weighted with a random dy and summed, which makes a scalar function.

    Returns the worst element; raises as `check` does.

    >>> from llmlab.ops import gelu
    >>> check_op(gelu, {"x": np.linspace(-3, 3, 7)}).error < 1e-8
    True
    """
    forward, backward = op.forward, op.backward
    needs, gives = _names(backward)
    outputs = _names(forward)[1]
    arguments = {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in arguments.items()}

    def run() -> dict[str, np.ndarray]:
        values = forward(**arguments)
        return dict(zip(outputs, values if isinstance(values, tuple) else (values,)))

    alive = run()
    generator = _generator(seed)
    upstream = {f"d{name}": generator.standard_normal(value.shape)
                for name, value in alive.items() if f"d{name}" in needs}
    available = {**arguments, **alive, **upstream}
    results = backward(**{name: available[name] for name in needs if name in available})
    made = dict(zip(gives, results if isinstance(results, tuple) else (results,)))
    gradients = {name: value for name, value in made.items() if name not in outputs}

    def function() -> float:
        values = run()
        return sum(float(np.vdot(dy, values[name[1:]])) for name, dy in upstream.items())

    inputs = {name[1:]: arguments[name[1:]] for name, gradient in gradients.items() if gradient is not None}
    gradients = {name: gradients[f"d{name}"] for name in inputs}
    dot_product_test(function, inputs, gradients, tolerance=tolerance, seed=seed)
    return check(function, inputs, gradients, tolerance=tolerance)


def _generator(seed: int) -> np.random.Generator:
    """A stream that no default_rng(seed) repeats: a dy equal to x would hide a transposed gradient."""
    return np.random.default_rng([seed, *b"gradcheck"])


def _names(function: Callable) -> tuple[list[str], list[str]]:
    """The names of what a function takes and of what it returns (keyword-only)."""
    parameters = inspect.signature(function).parameters.values()
    return ([p.name for p in parameters if p.kind is not p.KEYWORD_ONLY],
            [p.name for p in parameters if p.kind is p.KEYWORD_ONLY])
