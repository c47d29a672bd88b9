import json

import pytest

from llmlab.book import run
from llmlab.errors import UserError


def test_a_second_run_changes_no_byte(copied):
    chapter = copied.chapters[0]
    before = chapter.notebook.read_bytes()
    assert run.run(chapter) is False
    assert chapter.notebook.read_bytes() == before
    state = json.loads(before)["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    assert sorted(state) == [f"{number:032x}" for number in range(len(state))]


def test_a_cell_that_raises_leaves_the_notebook_alone(copied):
    chapter = copied.chapters[0]
    before = chapter.notebook.read_bytes()
    text = chapter.source.read_text(encoding="utf-8")
    chapter.source.write_text(text.replace("print(cat)", "1 / 0"), encoding="utf-8")
    with pytest.raises(UserError, match=r"03-small: a cell raised[^\0]*ZeroDivisionError"):
        run.run(chapter)
    assert chapter.notebook.read_bytes() == before
    names = sorted(path.name for path in copied.folder.iterdir())
    assert names == ["03-small.ipynb", "03-small.md", "index.md"]
