from pathlib import Path

import pytest

from llmlab.book import toc
from llmlab.errors import UserError

GOOD = {
    "file": '"03-small"',
    "title": '"Small"',
    "minutes": "5",
    "prerequisites": '["NumPy"]',
    "gpu": '"never"',
    "seconds": "60",
    "nbval": '"strict"',
}


HEAD = 'title = "t"\nsubtitle = "s"\n[[part]]\ntitle = "P"\n'


def write(root: Path, *chapters: dict) -> Path:
    (root / "chapters").mkdir()
    for chapter in chapters:
        name = chapter.get("file", '"x"').strip('"').replace("/", "")
        (root / "chapters" / f"{name}.md").write_text("# x\n")
    tables = ["[[part.chapter]]\n" + "\n".join(f"{k} = {v}" for k, v in c.items()) for c in chapters]
    (root / "book.toml").write_text(HEAD + "\n".join(tables))
    return root


def test_the_real_table_of_contents_is_valid():
    book = toc.read(Path(__file__).parents[2])
    assert book.chapters[0].file == "00-forward-pass"
    assert all(chapter.notebook.is_file() for chapter in book.chapters)


def test_reads_every_field(tmp_path):
    second = GOOD | {"file": '"05-next"', "prerequisites": '["03-small", "NumPy"]', "gpu": '"optional"'}
    book = toc.read(write(tmp_path, GOOD, second))
    assert [chapter.file for chapter in book.chapters] == ["03-small", "05-next"]
    assert book.chapters[1].source == tmp_path / "chapters" / "05-next.md"
    assert book.find("05") is book.find("chapters/05-next.ipynb") is book.chapters[1]
    assert book.opening(book.chapters[1]) == (
        "*5 minutes · for readers who know [Small](03-small.ipynb), NumPy · "
        "runs on any CPU, a GPU adds timings*"
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"file": '"3-small"'}, "file needs two digits"),
        ({"file": '"../03"'}, "file needs two digits"),
        ({"minutes": '"five"'}, "minutes is 'five', needs a whole number"),
        ({"minutes": "true"}, "minutes is True, needs a whole number"),
        ({"seconds": "0"}, "seconds is 0, needs to be at least 1"),
        ({"gpu": '"yes"'}, "gpu is 'yes', needs to be one of never, optional"),
        ({"nbval": '"none"'}, "nbval is 'none', needs to be one of strict, lax"),
        ({"prerequisites": '["04-later"]'}, "'04-later' is not a chapter before it"),
        ({"prerequisites": "[1]"}, "prerequisites has 1"),
        ({"minute": "5"}, "unknown key 'minute'"),
    ],
)
def test_names_a_wrong_field(tmp_path, change, complaint):
    with pytest.raises(UserError, match=complaint):
        toc.read(write(tmp_path, GOOD | change))


@pytest.mark.parametrize("key", [key for key in GOOD if key != "nbval"])
def test_names_a_missing_field(tmp_path, key):
    with pytest.raises(UserError, match=f"{key} is missing"):
        toc.read(write(tmp_path, {k: v for k, v in GOOD.items() if k != key}))


def test_numbers_must_rise(tmp_path):
    with pytest.raises(UserError, match="stands after 03-small; numbers need to rise"):
        toc.read(write(tmp_path, GOOD, GOOD | {"file": '"03-again"'}))


def test_names_a_missing_file(tmp_path):
    write(tmp_path, GOOD)
    (tmp_path / "chapters" / "03-small.md").unlink()
    with pytest.raises(UserError, match=r"no file .*03-small\.md"):
        toc.read(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        *("title = ", "title = 1", "part = 3", "", "\xff"),
        'title = "t"\nsubtitle = "s"\npart = [1]',
        'title = "t"\nsubtitle = "s"\n[[part]]\ntitle = "p"\nchapter = [1]',
    ],
)
def test_other_tables_are_refused_in_one_line(tmp_path, text):
    (tmp_path / "book.toml").write_text(text, encoding="latin-1")
    with pytest.raises(UserError) as caught:
        toc.read(tmp_path)
    assert "book.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_is_found_from_below_and_missed_elsewhere(tmp_path, monkeypatch):
    write(tmp_path, GOOD)
    monkeypatch.chdir(tmp_path / "chapters")
    assert toc.read().root == tmp_path
    with pytest.raises(UserError, match=r"no chapter '07' in book\.toml; it has 03-small"):
        toc.read().find("07")
    monkeypatch.chdir("/")
    with pytest.raises(UserError, match="inside a checkout"):
        toc.read()
