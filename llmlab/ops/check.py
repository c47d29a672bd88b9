"""The guard at the public door of an op: shapes, dtypes, attributes; each complaint names its argument."""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from llmlab.arrays import accumulation_dtype, bfloat16, float16, float32, float64, is_cupy, namespace

__all__ = ["between", "checked", "ids", "integer", "saved", "scalar"]

_FLOATS = (float64, float32, bfloat16, float16)
_FEATURES = {"C", "C_out", "3C", "V"}
"""Axes that are never empty, unlike those of rows: softmax, norms and products of nothing have no value."""
_LARGEST = float(np.finfo(float32).max)


def checked(also: Callable[..., None] | None = None, **specs: str) -> Callable:
    """Check the arguments of an op before it runs.

    Each keyword names an argument and gives its axes, as in ``x="*N C", weight="C"``: a letter is a length
    that all its uses share, a number is itself, ``*N`` stands for any number of leading axes. Before the
    axes may stand a word: `sum` for an array in the accumulation dtype (float32, or float64 with float64),
    `integer` for ids; otherwise all arrays share the dtype of the first. Axes of rows may be empty, those of
    features (C, C_out, 3C, V) may not. None is for results, and for arguments whose annotation allows it;
    results must be C-contiguous. `also` gets the arguments by name and checks what shapes cannot say.

    Raises TypeError for what is not an array or has another dtype, ValueError for a shape that does not fit.
    """
    parsed = {name: _parse(spec) for name, spec in specs.items()}

    def decorate(function: Callable) -> Callable:
        signature = inspect.signature(function)
        positional = [p.name for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
        results = {p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
        required = {p.name for p in signature.parameters.values() if p.default is p.empty}
        absent = {p.name for p in signature.parameters.values() if "None" in str(p.annotation)}
        passed: set[tuple] = set()  # what was found right needs no second look: steps repeat their shapes

        @functools.wraps(function)
        def door(*arguments, **named):
            values = dict(zip(positional, arguments), **named)
            if not required <= values.keys():
                signature.bind(*arguments, **named)  # which says what is missing
            tensors = [values.get(name) for name in parsed]
            layout = tuple(map(_layout, tensors))
            if layout not in passed:
                check_arrays(tensors)
                if len(passed) > 1000:
                    passed.clear()
                passed.add(layout)
            if also is not None:
                also(**values)
            return function(*arguments, **named)

        def check_arrays(tensors: list) -> None:
            first: dict[str, Any] = {}  # length or dtype -> what it is, and which argument said so
            for (name, (kind, axes)), x in zip(parsed.items(), tensors):
                if x is not None or (name in required and name not in absent):
                    _check_array(name, x, kind, axes, first)
                    if name in results and not x.flags.c_contiguous:
                        raise ValueError(f"{name} is not C-contiguous, so no result can be written into it; "
                                         f"give a contiguous buffer, or none")

        return door

    return decorate


def _layout(x: Any) -> tuple | None:
    """All that the check of shapes and dtypes looks at."""
    try:
        return None if x is None else (type(x), x.shape, x.dtype, x.flags.c_contiguous)
    except AttributeError:  # not an array: complained about in a moment
        return (type(x),)


def _parse(spec: str) -> tuple[str, list[str]]:
    kind, _, axes = spec.partition(" ") if spec.split()[:1] in (["sum"], ["integer"]) else ("", "", spec)
    return kind, axes.split()


def _check_array(name: str, x: Any, kind: str, axes: list[str], first: dict[str, Any]) -> None:
    if x is None:
        raise TypeError(f"{name} is None, needs to be a NumPy or CuPy array")
    if not (isinstance(x, np.ndarray) or is_cupy(x)):
        raise TypeError(f"{name} is a {type(x).__name__}, needs to be a NumPy or CuPy array; "
                        f"numpy.asarray({name}) makes one")
    _check_dtype(name, x.dtype, kind, first)
    shape = x.shape
    many = axes[:1] and axes[0][0] == "*"
    if len(shape) < len(axes) - 1 if many else len(shape) != len(axes):
        raise ValueError(f"{name} has shape {shape}, needs {'at least ' if many else ''}"
                         f"{len(axes) - bool(many)} axes ({' '.join(axes)})")
    lead = len(shape) - len(axes) + 1 if many else 0
    lengths = (shape[:lead], *shape[lead:]) if many else shape
    for axis, length in zip(axes, lengths):
        if axis.isdigit() and length != int(axis):
            raise ValueError(f"{name} has shape {shape}, needs ({', '.join(axes)})")
        expected, said_by = first.setdefault(axis, (length, name))
        if length != expected:
            raise ValueError(f"{name} has shape {shape}, needs ({', '.join(axes)}) with "
                             f"{axis} = {expected} as in {said_by}")
        if length == 0 and axis in _FEATURES:
            raise ValueError(f"{name} has shape {shape}, needs ({', '.join(axes)}) with {axis} at least 1; "
                             f"only axes of rows may be empty")


def _check_dtype(name: str, dtype: np.dtype, kind: str, first: dict[str, Any]) -> None:
    if kind == "integer":
        if dtype.kind not in "iu":
            raise TypeError(f"{name} has dtype {dtype}, needs integers; {name}.astype('int64')")
        return
    if dtype not in _FLOATS:
        raise TypeError(f"{name} has dtype {dtype}, needs one of {', '.join(d.name for d in _FLOATS)}")
    if kind == "sum":
        found, said_by = first.get("dtype", (dtype, name))
        expected = accumulation_dtype(found) if "dtype" in first else accumulation_dtype(dtype)
    else:
        expected, said_by = first.setdefault("dtype", (dtype, name))
    if dtype != expected:
        raise TypeError(f"{name} has dtype {dtype}, needs {expected} beside {said_by}; "
                        f"{name}.astype('{expected}') converts it")


def between(
    name: str, value: Any, low: float, high: float = math.inf, *, closed: bool = False, repair: str = "",
) -> None:
    """Raise ValueError unless low < value < high (or low <= value < high if `closed`); NaN never passes.

    `repair` ends the complaint with what else would do.
    """
    repair = repair and f"; {repair}"
    try:
        inside = bool(low <= value < high if closed else low < value < high)
    except (TypeError, ValueError):  # ValueError: an array of several elements
        raise TypeError(f"{name} is {value!r}, needs to be a number{repair}") from None
    if not inside:
        upper = "finite" if high == math.inf else f"below {high:g}"
        lower = f"{'at least' if closed else 'above'} {low:g}"
        raise ValueError(f"{name} is {value}, needs to be {lower} and {upper}{repair}")


def scalar(name: str, value: Any, low: float = -_LARGEST) -> None:
    """Raise unless `value` is a number from `low` on that float32 holds, or an array of one such element.

    An element on a GPU is not looked at, since that would make the host wait.
    """
    if getattr(value, "size", 1) != 1:
        raise ValueError(f"{name} has shape {value.shape}, needs to be a number, or an array of one element")
    if not is_cupy(value):
        between(name, value, low, _LARGEST, closed=True)


def integer(name: str, value: Any, low: int | None = None, high: int | None = None) -> None:
    """Raise TypeError unless `value` is an integer, ValueError unless low <= value <= high."""
    try:
        if isinstance(value, bool):
            raise TypeError
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, needs to be an integer") from None
    if low is not None and value < low:
        raise ValueError(f"{name} is {value}, needs to be at least {low}")
    if high is not None and value > high:
        raise ValueError(f"{name} is {value}, needs to be at most {high}")


def ids(name: str, values: Any, count: int, allowed: int | None = None) -> None:
    """Raise ValueError if an id on the host lies outside [0, count) and is not `allowed`.

    Ids on a GPU are not looked at here, since that would make the host wait; kernels check their own.
    """
    if is_cupy(values) or values.size == 0:
        return
    if values.min() >= 0 and values.max() < count:
        return
    wrong = (values < 0) | (values >= count)
    if allowed is not None:
        wrong &= values != allowed
    if wrong.any():
        where = np.unravel_index(int(np.argmax(wrong)), values.shape)
        place = ", ".join(map(str, map(int, where)))
        also = "" if allowed is None else f" (or {allowed}, which is ignored)"
        raise ValueError(f"{name}[{place}] is {int(values[where])}, needs to lie in [0, {count}){also}")


def saved(state: Mapping[str, Any], mine: Mapping[str, Any], **limits: tuple[float, float]) -> None:
    """Raise unless the arrays of a saved state can take the place of `mine`, the arrays of the same names.

    `limits` gives the lowest and the highest value of an array's elements; without, they need to be finite.
    TypeError for another dtype, ValueError for all else. Host or device: each array is looked at where it is.
    """
    if state.keys() != mine.keys():
        raise ValueError(f"state has {sorted(state)}, needs {sorted(mine)}")
    for name, array in mine.items():
        shape, dtype = (getattr(state[name], fact, None) for fact in ("shape", "dtype"))
        if shape != array.shape:
            raise ValueError(f"state {name!r} has shape {shape}, needs {array.shape}; "
                             f"it belongs to a model of another size")
        if dtype != array.dtype:
            raise TypeError(f"state {name!r} has dtype {dtype}, needs {array.dtype}; "
                            f"it belongs to a run in another precision, or is damaged")
        low, high = limits.get(name, (-math.inf, math.inf))
        inside = namespace(state[name]).isfinite(state[name]) & (state[name] >= low) & (state[name] <= high)
        if wrong := inside.size - int(inside.sum()):
            needs = f", needs finite ones in [{low:g}, {high:g}]" if name in limits else ", needs finite ones"
            raise ValueError(f"state {name!r} has {wrong} element(s) that no run has{needs}; "
                             f"it is damaged: load an earlier one")
