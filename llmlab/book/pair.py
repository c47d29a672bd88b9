"""A chapter's two files: `05-layernorm.md`, the source; `05-layernorm.ipynb`, the same cells with outputs.

Pairs are compared by content and never synchronised by modification time: after a clone the times of the two
files are milliseconds apart, and the older one may be the one that was edited.
"""

from pathlib import Path

import nbformat

from llmlab.book.toc import Chapter
from llmlab.errors import UserError

FORMAT = "md:myst"

# The one form of notebook metadata, so that JupyterLab, jupytext and `llmlab book run` write the same bytes.
METADATA = {
    "jupytext": {
        "cell_metadata_filter": "tags,jupyter,-all",
        "formats": "ipynb,md:myst",
        "notebook_metadata_filter": "kernelspec,-jupytext.text_representation.jupytext_version",
        "text_representation": {"extension": ".md", "format_name": "myst", "format_version": "0.13"},
    },
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}


def read_source(path: Path) -> nbformat.NotebookNode:
    """The `.md` as a notebook without outputs; cell ids count from "cell-00", so that none is random.

    Raises `UserError` for a file that is no MyST text.
    """
    import jupytext
    from yaml import YAMLError

    try:
        notebook = jupytext.read(path, fmt=FORMAT)
    except (ValueError, YAMLError) as error:
        raise UserError(f"{path} is not a MyST text: {_first_line(error)}") from None
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
    return notebook


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """The `.ipynb`, validated against the notebook format. Raises `UserError` for what is no notebook."""
    try:
        return nbformat.read(path, as_version=4)
    except (ValueError, nbformat.ValidationError) as error:
        raise UserError(
            f"{path} is not a notebook: {_first_line(error)}; `llmlab book run {path.stem}` writes it anew"
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:120]


def canonical(path: Path) -> str:
    """The text of a `.md` as jupytext writes it, and JupyterLab saves it, so that edits make small diffs."""
    import jupytext

    notebook = read_source(path)
    notebook.metadata = nbformat.from_dict(METADATA)
    return jupytext.writes(notebook, fmt=FORMAT)


def differences(chapter: Chapter) -> list[str]:
    """Where the two files differ in text or tags, cell by cell; outputs are not compared."""
    source, notebook = read_source(chapter.source).cells, read_notebook(chapter.notebook).cells
    md, ipynb = chapter.source.name, chapter.notebook.name
    found = [
        f"cell {number} differs: {md} has {_excerpt(a, b)}, {ipynb} has {_excerpt(b, a)}"
        for number, (a, b) in enumerate(zip(source, notebook, strict=False))
        if _content(a) != _content(b)
    ]
    if len(source) != len(notebook):
        found.append(f"{md} has {len(source)} cells, {ipynb} has {len(notebook)}")
    if not found and chapter.source.read_text(encoding="utf-8") != canonical(chapter.source):
        found.append(f"{md} is not in jupytext's form; `llmlab book run` brings it there")
    return found


def _content(cell: nbformat.NotebookNode) -> tuple:
    return cell.cell_type, cell.source.rstrip(), tuple(cell.metadata.get("tags", ()))


def _excerpt(cell: nbformat.NotebookNode, other: nbformat.NotebookNode) -> str:
    """The first line of `cell` that `other` lacks."""
    if cell.cell_type != other.cell_type:
        return f"a {cell.cell_type} cell"
    theirs = set(other.source.splitlines())
    line = next((line for line in cell.source.splitlines() if line not in theirs), None)
    return f"tags {cell.metadata.get('tags', [])}" if line is None else repr(line.strip()[:60])
