"""Build the book's pages: Sphinx on the executed notebooks, every warning an error."""

import hashlib
import io
import sys
import warnings
from pathlib import Path

from llmlab.book import check, pages
from llmlab.book.toc import Book
from llmlab.errors import UserError

# es5/tex-svg.js of npm's mathjax 3.2.2, carried by the wheel sphinx-mathjax-offline: nobody needs npm.
MATHJAX_SHA256 = "d4295dc33744836935c1399feece5159577b34c5c8ffb9f1c6324cd82e03a882"


def build(book: Book, out: Path) -> Path:
    """Write the site into the folder `out`; return its first page.

    Raises `UserError` if a chapter's files are not whole (`check.static`), if Sphinx warns, or if MathJax is
    not the file that it should be.
    """
    for chapter in book.chapters:
        if problems := check.static(book, chapter):
            raise UserError(f"{chapter.file}: {problems[0]}; `llmlab book check {chapter.file}` tells all")
    configuration = pages.configuration(book)
    mathjax = pages.mathjax()
    if hashlib.sha256(mathjax.read_bytes()).hexdigest() != MATHJAX_SHA256:
        raise UserError(f"{mathjax} is not that of MathJax 3.2.2; reinstall sphinx-mathjax-offline==0.0.2")

    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    complaints = io.StringIO()
    out.mkdir(parents=True, exist_ok=True)
    with docutils_namespace(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's, from inside the theme; Sphinx's own go to `complaints`
        sphinx = Sphinx(
            srcdir=book.folder,
            confdir=None,
            outdir=out,
            doctreedir=out.parent / f"{out.name}-doctrees",
            buildername="html",
            confoverrides=configuration,
            status=None,
            warning=complaints,
        )
        sphinx.build()
    if complaints.getvalue():
        sys.stderr.write(complaints.getvalue())
        raise UserError("Sphinx had warnings, each of which is an error in this book; they are above")
    return out / "index.html"
