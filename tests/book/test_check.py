import nbformat
import pytest

from llmlab.book import check, pair
from llmlab.book.cli import main


def changed(book, change):
    """The problems of the small chapter after `change(notebook)`."""
    chapter = book.chapters[0]
    notebook = pair.read_notebook(chapter.notebook)
    change(notebook)
    nbformat.write(notebook, chapter.notebook)
    return check.static(book, chapter)


def test_the_executed_chapter_has_no_problem(executed):
    assert check.static(executed, executed.chapters[0]) == []
    assert check.orphans(executed) == []


def never_run(notebook):
    notebook.cells[1].execution_count = None


def wrote_on_stderr(notebook):
    notebook.cells[1].outputs.append(nbformat.v4.new_output("stream", name="stderr", text="UserWarning: x"))


def raised(notebook):
    error = nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])
    notebook.cells[2].outputs = [error]


def wrong_solution(notebook):
    notebook.cells[4].outputs[0].text = "✗ three: double is 3, needs to be 6.\n"


def other_opening(notebook):
    notebook.cells[0].source = notebook.cells[0].source.replace("*5 minutes", "*6 minutes")


def old_widget(notebook):
    state = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    model = next(values["state"] for values in state.values() if "_esm" in values["state"])
    model["_esm"] += "// edited"


def stock_widget(notebook):
    state = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    model = next(values["state"] for values in state.values() if "_esm" in values["state"])
    del model["_anywidget_id"]
    model["_model_name"] = "IntSliderModel"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (never_run, "execution count None"),
        (wrote_on_stderr, "wrote on stderr: 'UserWarning: x'"),
        (raised, "ended with ValueError: no"),
        (wrong_solution, "is a solution, and its check does not say ✓"),
        (other_opening, "needs this line"),
        (old_widget, "older JavaScript of LayerNormWidget"),
        (stock_widget, "IntSliderModel, which is not one of llmlab.widgets"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_kind_of_untruth_is_found(copied, change, complaint):
    assert any(complaint in problem for problem in changed(copied, change))


def test_shown_code_is_shipped_code():
    """The proof holds for the same tree in other clothes, and fails for one changed constant."""
    name = "llmlab.book.check.orphans"
    shipped = '''
def stray(book):  # another name, no docstring, other layout
    listed = {c.notebook.name for c in book.chapters}
    return [
        f"chapters/{path.name} is not listed in book.toml"
        for path in sorted(book.folder.glob("*.ipynb")) if path.name not in listed]
'''
    renamed = shipped.replace("c.notebook.name for c in", "chapter.notebook.name for chapter in")
    assert check.same_code(renamed, name)
    assert not check.same_code(shipped, name)
    assert not check.same_code(renamed.replace("*.ipynb", "*.md"), name)


def test_a_tag_brings_the_proof_to_a_chapter(copied):
    def tag(notebook):
        notebook.cells[4].metadata["tags"] = ["solution", "hide-input", "shipped:llmlab.book.check.orphans"]

    assert any("otherwise than it is shipped" in problem for problem in changed(copied, tag))


def test_a_notebook_outside_the_table_of_contents_is_an_orphan(copied, monkeypatch, capsys):
    (copied.folder / "04-lost.ipynb").write_text("{}")
    monkeypatch.chdir(copied.root)
    assert main(["check", "--static"]) == 1
    assert "chapters/04-lost.ipynb is not listed in book.toml" in capsys.readouterr().out


def test_a_missing_notebook_says_how_to_make_it(copied):
    copied.chapters[0].notebook.unlink()
    assert check.static(copied, copied.chapters[0]) == [
        "has no 03-small.ipynb; make it with `llmlab book run 03-small`"
    ]
