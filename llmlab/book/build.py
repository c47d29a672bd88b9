"""Build the book's pages: Sphinx on the executed notebooks, every warning an error, nothing from another host."""

import hashlib
import os
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from llmlab.book import check
from llmlab.book.toc import Book
from llmlab.errors import UserError

SITE = Path(__file__).parent / "site"

# es5/tex-svg.js of npm's mathjax 3.2.2, one file that holds its fonts. The wheel sphinx-mathjax-offline carries it.
MATHJAX_SHA256 = "d4295dc33744836935c1399feece5159577b34c5c8ffb9f1c6324cd82e03a882"


def build(book: Book, out: Path) -> Path:
    """Write the site into the folder `out`; return its first page.

    Raises `UserError` if a chapter's files are not whole (`check.static`), if Sphinx warns, or if MathJax is not
    the file that it should be.
    """
    for chapter in book.chapters:
        if problems := check.static(book, chapter):
            raise UserError(f"{chapter.file}: {problems[0]}; `llmlab book check {chapter.file}` tells all")
    _verify_mathjax()
    from sphinx.cmd.build import build_main

    os.environ["LLMLAB_BOOK_ROOT"] = str(book.root)
    doctrees = out.parent / f"{out.name}-doctrees"
    options = ["-q", "-W", "--keep-going", "-n", "-j", "1", "-b", "html", "-c", str(SITE), "-d", str(doctrees)]
    if build_main([*options, str(book.folder), str(out)]) != 0:
        raise UserError("Sphinx had warnings, each of which is an error in this book; they are above")
    return out / "index.html"


def _verify_mathjax() -> None:
    try:
        path = next(f for f in files("sphinx-mathjax-offline") if f.name == "tex-svg.js").locate()
    except PackageNotFoundError:
        raise UserError("building the book needs `pip install 'llmlab[book]'`") from None
    if hashlib.sha256(Path(path).read_bytes()).hexdigest() != MATHJAX_SHA256:
        raise UserError(f"{path} is not MathJax 3.2.2's tex-svg.js; reinstall sphinx-mathjax-offline==0.0.2")
