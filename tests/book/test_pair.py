import os

import pytest

from llmlab.book import pair
from llmlab.errors import UserError


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_equal_whatever_the_times_say(copied):
    chapter = copied.chapters[0]
    for older, newer in [(chapter.source, chapter.notebook), (chapter.notebook, chapter.source)]:
        os.utime(older, (1, 1))
        os.utime(newer)
        assert pair.differences(chapter) == []


def test_an_edit_on_either_side_is_named(copied):
    chapter = copied.chapters[0]
    edit(chapter.source, "cat, ls = 4", "cat, ls = 5")
    (difference,) = pair.differences(chapter)
    assert "cell 1 differs: 03-small.md has 'cat, ls = 5" in difference
    edit(chapter.source, "cat, ls = 5", "cat, ls = 4")
    edit(chapter.notebook, "cat, ls = 4", "cat, ls = 3")
    assert len(pair.differences(chapter)) == 1


def test_a_new_cell_and_a_changed_tag_are_named(copied):
    chapter = copied.chapters[0]
    edit(chapter.source, "[solution, hide-input]", "[solution]")
    assert "tags" in pair.differences(chapter)[0]
    with chapter.source.open("a", encoding="utf-8") as file:
        file.write("\nOne more word.\n")
    assert "03-small.md has 7 cells, 03-small.ipynb has 6" in pair.differences(chapter)[-1]


def test_the_round_trip_changes_no_code_line(copied):
    """A line that looks like a cell mark in a string, and names that are also IPython magics, survive."""
    import jupytext

    source = pair.read_source(copied.chapters[0].source)
    text = jupytext.writes(source, fmt="md:myst")
    again = jupytext.reads(text, fmt="md:myst")
    assert [cell.source for cell in again.cells] == [cell.source for cell in source.cells]
    assert 'cat, ls = 4, "# %%"' in source.cells[1].source
    ids = [cell.id for cell in pair.read_source(copied.chapters[0].source).cells]
    assert ids == [cell.id for cell in source.cells] == sorted(set(ids))


def test_another_form_of_the_source_is_named(copied):
    """JupyterLab would rewrite it at the first save, and every edit would hide in that diff."""
    chapter = copied.chapters[0]
    edit(chapter.source, "  formats: ipynb,md:myst\n", "")
    (difference,) = pair.differences(chapter)
    assert difference == "03-small.md is not in jupytext's form; `llmlab book run` brings it there"


@pytest.mark.parametrize("content", [b'{"cells": [', b"{}", b"\xff\xfe\x00", b"---\njupytext: [\n---\n"])
def test_a_damaged_file_is_one_clear_line(copied, content):
    chapter = copied.chapters[0]
    chapter.notebook.write_bytes(content)
    with pytest.raises(UserError, match=r"03-small\.ipynb is not a notebook: .*`llmlab book run 03-small`"):
        pair.read_notebook(chapter.notebook)
    if not content.startswith(b"{"):
        chapter.source.write_bytes(content)
        with pytest.raises(UserError, match=r"03-small\.md is not a MyST text: "):
            pair.read_source(chapter.source)
