"""`llmlab book run|check|test|build|open`, and their short forms `llmlab check` and `llmlab lab`."""

from pathlib import Path

from llmlab.book import toc
from llmlab.cli import Parser
from llmlab.errors import UserError


def main(argv: list[str]) -> int:
    """Run one of the book's commands; return its exit code: 0 true, 1 the book is not, 2 bad input."""
    parser = Parser(prog="llmlab book", description="Run, prove, build and open the book.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (action, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name not in ("build", "open"):
            several = name != "lab"
            sub.add_argument(
                "chapters" if several else "chapter",
                nargs="*" if several else "?",
                help=f"such as 05-layernorm or 05 (default: {'every chapter' if several else 'the first'})",
            )
        if name == "check":
            sub.add_argument("--static", action="store_true", help="only read the files, run nothing")
        if name in ("build", "open"):
            sub.add_argument("--out", type=Path, help="folder of the site (default: build/book)")
        if name == "lab":
            sub.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
        sub.set_defaults(action=action)
    arguments = parser.parse_args(argv)
    return arguments.action(arguments)


def _chapters(book: toc.Book, names: list[str]) -> tuple[toc.Chapter, ...]:
    return tuple(map(book.find, names)) if names else book.chapters


def _run(arguments) -> int:
    from llmlab.book.run import run

    book = toc.read()
    for chapter in _chapters(book, arguments.chapters):
        changed = run(chapter)
        print(f"{chapter.file}: {'written' if changed else 'unchanged'}", flush=True)
    return 0


def _check(arguments) -> int:
    from llmlab.book import check

    book = toc.read()
    wrong = check.orphans(book) if not arguments.chapters else []
    chapters = _chapters(book, arguments.chapters)
    for chapter in chapters:
        found = check.static(book, chapter)
        if not found and not arguments.static:
            print(f"{chapter.file}: running it, at most {chapter.seconds} s", flush=True)
            found = check.fresh_run(chapter)
        wrong += [f"{chapter.file}: {problem}" for problem in found]
    for problem in wrong:
        print(f"✗ {problem}")
    if not wrong:
        how = "whole" if arguments.static else "whole, and gave its stored outputs again"
        print(f"✓ {len(chapters)} chapter{'s' * (len(chapters) != 1)}: {how}.")
    return 1 if wrong else 0


def _test(arguments) -> int:
    from llmlab.book import check

    failed = False
    for chapter in _chapters(toc.read(), arguments.chapters):
        for problem in check.fresh_run(chapter):
            print(f"✗ {chapter.file}: {problem}")
            failed = True
    return 1 if failed else 0


def _build(arguments) -> int:
    from llmlab.book.build import build

    book = toc.read()
    page = build(book, arguments.out or book.root / "build" / "book")
    print(f"the book is in {page}; `llmlab book open` shows it")
    return 0


def _open(arguments) -> int:
    import webbrowser

    book = toc.read()
    folder = arguments.out or book.root / "build" / "book"
    page = folder / "index.html"
    if not page.is_file():
        _build(arguments)
    if not webbrowser.open(page.resolve().as_uri()):
        raise UserError(f"no browser was found; open {page} in one yourself")
    return 0


def _lab(arguments) -> int:
    from llmlab.book import lab

    book = toc.read()
    chapter = book.find(arguments.chapter) if arguments.chapter else book.chapters[0]
    lab.open_lab(book, chapter, ["--no-browser"] if arguments.no_browser else [])
    return 0


COMMANDS = {
    "run": (_run, "execute chapters, the .md into the .ipynb"),
    "check": (_check, "prove that chapters are whole and true on this machine"),
    "test": (_test, "only the fresh run of `check`, under strict nbval"),
    "build": (_build, "make the HTML pages"),
    "open": (_open, "open the HTML pages in a browser"),
    "lab": (_lab, "open a chapter in JupyterLab"),
}
