"""Execute a chapter's `.md` into its `.ipynb`, so that a second run changes no byte."""

import json
import os
import re
from pathlib import Path

import nbformat

from llmlab.book import pair, widget_state
from llmlab.book.toc import Chapter
from llmlab.errors import UserError


def run(chapter: Chapter) -> bool:
    """Execute the chapter from its source; write its notebook; return whether that changed a file.

    The source is brought into the form that jupytext writes. Raises `UserError` with cell and traceback
    if a cell raises: then both files stay as they were.
    """
    notebook = execute(chapter)
    wrote_source = _write(chapter.source, pair.canonical(chapter.source))
    return _write(chapter.notebook, notebook) or wrote_source


def _write(path: Path, text: str) -> bool:
    """Replace the file at once, or leave it if it has this text; return whether it changed."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
    return True


def execute(chapter: Chapter) -> str:
    """The text of the chapter's notebook after a fresh run of its source."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    notebook = pair.read_source(chapter.source)
    client = NotebookClient(
        notebook,
        timeout=chapter.seconds,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(chapter.folder)}},
    )
    try:
        client.execute(env=environment())
    except CellTimeoutError:
        raise UserError(f"{chapter.file}: a cell ran longer than the chapter's {chapter.seconds} s") from None
    except CellExecutionError as error:
        raise UserError(f"{chapter.file}: a cell raised\n{_without_colour(str(error))}") from None
    return stable_text(notebook)


def environment() -> dict[str, str]:
    """The environment of a chapter's kernel: this llmlab, no GPU, nothing that varies between two runs."""
    package = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": package if not path else package + os.pathsep + path,
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def stable_text(notebook: nbformat.NotebookNode) -> str:
    """The notebook as text, all chance taken out: metadata in one form, widget models numbered in order."""
    widget_state.renumber(notebook)
    widgets = {key: notebook.metadata[key] for key in ("widgets",) if key in notebook.metadata}
    notebook.metadata = nbformat.from_dict({**pair.METADATA, **widgets})
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _without_colour(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
