"""Tables, listings and figures of the chapters."""

import pytest

from llmlab.book.chapter import figure, show
from llmlab.book.chapter.listing import source
from llmlab.book.chapter.tables import markdown
from llmlab.ops import gelu, layernorm


def test_numbers_stand_right_and_bars_are_escaped():
    text = markdown(["name", "share", "n"], [["a|b", "12 %", 1234567], ["c", "-3.5", 8]])
    assert text.splitlines()[1:3] == ["|:---|---:|---:|", r"| a\|b | 12 % | 1,234,567 |"]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="a row has 1 entries, needs 2"):
        markdown(["a", "b"], [[1]])


@pytest.mark.parametrize("function", [gelu.forward, layernorm.backward])
def test_a_listing_is_the_text_without_its_clothes(function):
    text = source(function)
    assert text.startswith(f"def {function.__name__}(")
    assert '"""' not in text
    assert "@" not in text.partition(":")[0]
    assert "    return " in text
    assert '"""' in source(function, docstring=True)


@pytest.mark.parametrize("thing", [len, 3, lambda x: x])
def test_only_functions_with_a_def_are_shown(thing):
    with pytest.raises(TypeError, match="show needs functions"):
        show(thing)


def test_figures_are_opaque_and_in_the_book_s_colours():
    import matplotlib.pyplot as plt

    left, right = figure(1, 2)
    (line,) = left.plot([1, 2])
    assert right.figure.get_facecolor() == (1, 1, 1, 1)
    assert line.get_color() == "#0072B2"
    plt.close("all")
