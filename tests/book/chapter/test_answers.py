"""What a reader hears about an answer: one line, true, and never an exception."""

import numpy as np
import pytest

from llmlab.book.chapter import check


def pair(x):
    return 2 * x, x.sum()


AGAIN = "Then run this cell again."
CASES = {"three": (np.arange(3.0),), "none": (np.zeros(0),)}


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (lambda x: (x + x, x.sum()), "✓ your answer is right: three, none."),
        (lambda x: None, "… your answer is yours to write: it returned None so far. " + AGAIN),
        (lambda x: ..., "… your answer is yours to write: it returned Ellipsis so far. " + AGAIN),
        (lambda x: x, "✗ three: your answer returned 1 of 2 results: twice, sum."),
        (lambda x: (x, x.sum()), "✗ three: twice is 2 at [2], needs to be 4."),
        (lambda x: (2 * x, x.sum() + 1), "✗ three: sum is 4, needs to be 3."),
        (lambda x: (2 * x[:2], x.sum()), "✗ three: twice has shape (2,), needs (3,)."),
        (lambda x: (2 * x, np.nan), "✗ three: sum is nan, needs to be 3."),
        (lambda x: ("no", 1), "✗ three: twice is 'no', needs to be an array of numbers."),
        (lambda x: (2 * x, x.sum()), "✗ none: your answer raised ZeroDivisionError: division by zero"),
    ],
)
def test_says_what_is_wrong(answer, line, capsys):
    def careful(x):
        if len(x) == 0 and "raised" in line:
            return 1 / 0
        return answer(x)

    careful.__name__ = "<lambda>"
    check(careful, pair, CASES, names=["twice", "sum"])
    assert capsys.readouterr().out == line + "\n"


def test_an_answer_may_not_change_its_arguments(capsys):
    def double(x):
        x *= 2
        return x

    x = np.arange(3.0)
    check(double, lambda x: 2 * x, {"three": (x,)})
    assert capsys.readouterr().out.startswith("✗ three: double changed one of its arguments")
    assert x.tolist() == [0, 1, 2]


def test_the_right_scale_decides(capsys):
    """A small error beside the largest entry passes, the same error alone does not."""
    check(lambda x: x + 1e-8, lambda x: x, {"large": (np.array([1.0, 0.0]),)})
    check(lambda x: x + 1e-8, lambda x: x, {"small": (np.array([1e-8, 0.0]),)})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("✓")
    assert second.startswith("✗ small")
