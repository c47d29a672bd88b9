"""JupyterLab, set up for the book: chapters open as notebooks, no news, no questions to other hosts."""

import os
import sys
from pathlib import Path

from llmlab.book.toc import Book, Chapter

SETTINGS = Path(__file__).parent / "lab_settings"


def command(book: Book, chapter: Chapter, options: list[str]) -> list[str]:
    """The command line that opens `chapter`. Settings are ours where the reader has not set his own."""
    return [
        *(sys.executable, "-m", "jupyterlab"),
        f"--LabApp.app_settings_dir={SETTINGS}",
        f"--ServerApp.root_dir={book.root}",
        f"--LabApp.default_url=/lab/tree/chapters/{chapter.notebook.name}",
        *options,
    ]


def open_lab(book: Book, chapter: Chapter, options: list[str]) -> None:
    """Become JupyterLab: the process is replaced on POSIX, so that Ctrl-C reaches it alone."""
    arguments = command(book, chapter, options)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")])
    )
    os.execv(arguments[0], arguments)
