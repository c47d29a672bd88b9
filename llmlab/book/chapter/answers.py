"""Check a reader's own answer: run *their* function on cases, and say in a sentence what is wrong with it.

Nothing here raises: a chapter with an unsolved exercise still runs to its end.
"""

import copy
from collections.abc import Callable, Mapping, Sequence

import numpy as np


def check(
    answer: Callable,
    reference: Callable,
    cases: Mapping[str, Sequence],
    names: Sequence[str] = ("the result",),
    rtol: float = 1e-6,
) -> None:
    """Print whether `answer` gives what `reference` gives in every case; if not, where it first goes wrong.

    `cases` maps a description to the positional arguments; `names` are the names of the results, in order.
    An entry is right if it is within `rtol` times the largest entry of the reference.

    >>> check(lambda x: x + x, lambda x: 2 * x, {"a single number": [np.ones(1)]})
    ✓ your answer is right: a single number.
    >>> check(lambda x: 3 * x, lambda x: 2 * x, {"a single number": [np.ones(1)]})
    ✗ a single number: the result is 3 at [0], needs to be 2.
    >>> def scale(x): ...
    >>> check(scale, lambda x: 2 * x, {"a single number": [np.ones(1)]})
    … scale is yours to write: it returned None so far. Then run this cell again.
    """
    name = getattr(answer, "__name__", "<lambda>")
    name = "your answer" if name == "<lambda>" else name
    for case, arguments in cases.items():
        if complaint := _complaint(name, answer, reference, arguments, names, rtol):
            print(complaint if complaint[0] == "…" else f"✗ {case}: {complaint}")
            return
    print(f"✓ {name} is right: {', '.join(cases)}.")


def _complaint(name, answer, reference, arguments, names, rtol) -> str | None:
    """What is wrong with `answer` in one case, or None."""
    given = copy.deepcopy(list(arguments))
    try:
        results = answer(*given)
    except NotImplementedError:  # the reader's own way to say that it is not written yet
        results = None
    except Exception as error:  # whatever the reader's code raises is the finding
        return f"{name} raised {type(error).__name__}: {error}"
    if results is None or results is Ellipsis:
        return f"… {name} is yours to write: it returned {results} so far. Then run this cell again."
    arrays = [(a, b) for a, b in zip(given, arguments) if isinstance(b, np.ndarray)]
    if any(not np.array_equal(a, b, equal_nan=True) for a, b in arrays):
        return f"{name} changed one of its arguments; let it return a new array."
    wanted = reference(*copy.deepcopy(list(arguments)))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    results = results if isinstance(results, tuple) else (results,)
    if len(results) != len(wanted):
        return f"{name} returned {len(results)} of {len(wanted)} results: {', '.join(names)}."
    for label, got, right in zip(names, results, wanted):
        if complaint := _difference(label, got, np.asarray(right, np.float64), rtol):
            return complaint
    return None


def _difference(label: str, got: object, right: np.ndarray, rtol: float) -> str | None:
    try:
        got = np.asarray(got, np.float64)
    except (TypeError, ValueError):
        return f"{label} is {got!r}, needs to be an array of numbers."
    if got.shape != right.shape:
        return f"{label} has shape {got.shape}, needs {right.shape}."
    error = np.abs(got - right)
    error = np.where(np.isfinite(error), error, np.inf)
    if error.size == 0 or error.max() <= rtol * np.abs(right).max():
        return None
    worst = np.unravel_index(error.argmax(), error.shape)
    where = f" at [{', '.join(map(str, worst))}]" if worst else ""
    return f"{label} is {got[worst]:.6g}{where}, needs to be {right[worst]:.6g}."
