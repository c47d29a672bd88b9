"""`llmlab book ...` on a real folder, as a person calls it."""

import pytest

from llmlab.book import lab
from llmlab.book.cli import main
from llmlab.cli import main as llmlab
from llmlab.errors import UserError


@pytest.fixture(autouse=True)
def in_the_book(copied, monkeypatch):
    monkeypatch.chdir(copied.root)


def test_run_says_what_it_did(copied, capsys):
    copied.chapters[0].notebook.unlink()
    assert main(["run", "03"]) == 0
    assert main(["run"]) == 0
    assert capsys.readouterr().out == "03-small: written\n03-small: unchanged\n"


def test_check_proves_the_book(capfd):
    assert llmlab(["check"]) == 0
    assert "✓ 1 chapter: whole, and gave its stored outputs again." in capfd.readouterr().out


def test_test_is_red_for_a_stored_output_that_is_not_true(copied, capfd):
    notebook = copied.chapters[0].notebook
    text = notebook.read_text(encoding="utf-8")
    assert text.count('"4\\n') == 1
    notebook.write_text(text.replace('"4\\n', '"5\\n'), encoding="utf-8")
    assert main(["test"]) == 1
    assert "a fresh run does not give the stored outputs" in capfd.readouterr().out


def test_a_chapter_that_takes_too_long_is_named(copied, capfd, monkeypatch):
    monkeypatch.setattr("llmlab.book.check.START", -119.9)
    assert main(["test"]) == 1
    assert "ran longer than the 120 s" in capfd.readouterr().out


def test_mistakes_are_one_line_and_exit_code_2(capsys):
    assert llmlab(["book", "run", "07"]) == 2
    assert capsys.readouterr().err == "llmlab: error: no chapter '07' in book.toml; it has 03-small\n"
    with pytest.raises(UserError, match="invalid choice"):
        main(["burn"])


def test_lab_opens_the_chapter_asked_for(monkeypatch):
    opened = []
    monkeypatch.setattr(lab, "open_lab", lambda _, chapter, options: opened.append((chapter.file, options)))
    assert llmlab(["lab", "03", "--no-browser"]) == 0
    assert opened == [("03-small", ["--no-browser"])]


def test_open_builds_what_is_missing(monkeypatch, copied):
    shown = []
    monkeypatch.setattr("webbrowser.open", lambda address: shown.append(address) or True)
    assert main(["open"]) == 0
    assert shown == [(copied.root / "build" / "book" / "index.html").as_uri()]
