"""`book.toml`: the parts and chapters of the book, read into frozen dataclasses, every mistake named."""

import re
import tomllib
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

from llmlab.errors import UserError

GPU = ("never", "optional")
NBVAL = ("strict", "lax")
FILE_NAME = re.compile(r"\d\d-[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Chapter:
    """One chapter: a `[[part.chapter]]` table of `book.toml`.

    file           the name of its two files without the ending, such as "05-layernorm"
    title          as its first heading says it
    minutes        reading time
    prerequisites  what the reader needs: names of earlier chapters ("00-forward-pass") or words ("NumPy")
    gpu            "never": it would change nothing; "optional": with one, the chapter also times its kernels
    seconds        the longest that all its cells together may run on a CPU
    nbval          "strict": every stored output must come again; "lax": only those of marked cells
    """

    file: str
    title: str
    minutes: int
    prerequisites: tuple[str, ...]
    gpu: str
    seconds: int
    nbval: str = "strict"
    folder: Path = Path()

    @property
    def source(self) -> Path:
        """The MyST text, which people edit."""
        return self.folder / f"{self.file}.md"

    @property
    def notebook(self) -> Path:
        """The executed notebook, which `llmlab book run` writes."""
        return self.folder / f"{self.file}.ipynb"


@dataclass(frozen=True)
class Part:
    """Some chapters under one title."""

    title: str
    chapters: tuple[Chapter, ...]


@dataclass(frozen=True)
class Book:
    """The whole table of contents."""

    root: Path
    title: str
    subtitle: str
    parts: tuple[Part, ...]

    @property
    def folder(self) -> Path:
        """Where the chapters lie."""
        return self.root / "chapters"

    @property
    def chapters(self) -> tuple[Chapter, ...]:
        """All chapters, in reading order."""
        return tuple(chapter for part in self.parts for chapter in part.chapters)

    def find(self, name: str) -> Chapter:
        """The chapter called `name`: its file name, with or without ending, or its number.

        Raises `UserError` if there is none.
        """
        wanted = Path(name).name.removesuffix(".md").removesuffix(".ipynb")
        for chapter in self.chapters:
            if wanted in (chapter.file, chapter.file[:2]):
                return chapter
        known = ", ".join(chapter.file for chapter in self.chapters)
        raise UserError(f"no chapter {name!r} in book.toml; it has {known}")

    def needs(self, chapter: Chapter) -> str:
        """A chapter's prerequisites as Markdown, earlier chapters as links."""
        names = {other.file: other.title for other in self.chapters}
        return ", ".join(f"[{names[p]}]({p}.ipynb)" if p in names else p for p in chapter.prerequisites)

    def opening(self, chapter: Chapter) -> str:
        """The line under a chapter's heading that tells time and prerequisites, as its `.md` must have it."""
        gpu = {"never": "no GPU needed", "optional": "runs on any CPU, a GPU adds timings"}[chapter.gpu]
        return f"*{chapter.minutes} minutes · for readers who know {self.needs(chapter)} · {gpu}*"


def find_root(start: Path | None = None) -> Path:
    """The folder that holds `book.toml`: `start` (default: the working directory) or the nearest above it."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "book.toml").is_file():
            return folder
    raise UserError(f"no book.toml in {start} or above; run this inside a checkout of llmlab")


def read(root: Path | None = None) -> Book:
    """Read and validate `book.toml` in `root` (default: found from the working directory upwards).

    Raises `UserError` naming the key, what it has, and what it needs.
    """
    root = find_root() if root is None else root
    try:
        table = tomllib.loads((root / "book.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no book.toml in {root}") from None
    except ValueError as error:  # bytes that are no UTF-8, or text that is no TOML
        raise UserError(f"book.toml is not TOML: {error}") from None
    _known_keys(table, {"title", "subtitle", "part"}, "book.toml")
    title, subtitle = (_value(table, key, str, "book.toml") for key in ("title", "subtitle"))
    seen: list[str] = []
    parts = tuple(
        _part(part, number, root / "chapters", seen)
        for number, part in enumerate(_value(table, "part", list, "book.toml"), 1)
    )
    if not seen:
        raise UserError("book.toml lists no chapter; add a [[part.chapter]]")
    return Book(root, title, subtitle, parts)


def _part(table: dict, number: int, folder: Path, seen: list[str]) -> Part:
    where = f"book.toml, part {number}"
    _known_keys(table, {"title", "chapter"}, where)
    chapters = _value(table, "chapter", list, where)
    return Part(_value(table, "title", str, where), tuple(_chapter(c, where, folder, seen) for c in chapters))


def _chapter(table: dict, where: str, folder: Path, seen: list[str]) -> Chapter:
    """One validated chapter; its name is added to `seen`, the chapters before the next one."""
    keys = [field for field in fields(Chapter) if field.name != "folder"]
    known = {field.name for field in keys}
    title = table.get("title", "?") if isinstance(table, dict) else table
    _known_keys(table, known, f"{where}, chapter {title!r}")
    name = _value(table, "file", str, f"{where}, chapter {title!r}")
    where = f"book.toml, chapter {name}"
    values = {
        field.name: _value(table, field.name, field.type if field.type in _KINDS else list, where)
        for field in keys
        if field.name in table or field.default is MISSING
    }
    if not FILE_NAME.fullmatch(name):
        raise UserError(f'{where}: file needs two digits and lower-case words, such as "05-layernorm"')
    if seen and name[:2] <= seen[-1][:2]:
        raise UserError(f"{where} stands after {seen[-1]}; numbers need to rise in reading order")
    for key, allowed in (("gpu", GPU), ("nbval", NBVAL)):
        if values.get(key, allowed[0]) not in allowed:
            raise UserError(f"{where}: {key} is {values[key]!r}, needs to be one of {', '.join(allowed)}")
    for key in ("minutes", "seconds"):
        if values[key] < 1:
            raise UserError(f"{where}: {key} is {values[key]}, needs to be at least 1")
    _prerequisites(values["prerequisites"], where, seen)
    values["prerequisites"] = tuple(values["prerequisites"])
    chapter = Chapter(**values, folder=folder)
    if not chapter.source.is_file():
        raise UserError(f"{where}: no file {chapter.source}; write it, or take the chapter out of book.toml")
    seen.append(name)
    return chapter


def _prerequisites(entries: list, where: str, seen: list[str]) -> None:
    for entry in entries:
        if not isinstance(entry, str) or not entry:
            raise UserError(f"{where}: prerequisites has {entry!r}, needs words or names of earlier chapters")
        if FILE_NAME.fullmatch(entry) and entry not in seen:
            raise UserError(f"{where}: prerequisite {entry!r} is not a chapter before it ({', '.join(seen)})")


def _known_keys(table: object, known: set[str], where: str) -> None:
    if not isinstance(table, dict):
        raise UserError(f"{where} is {table!r}, needs to be a table; write [[part]] and [[part.chapter]]")
    if unknown := sorted(set(table) - known):
        raise UserError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")


def _value(table: dict, key: str, kind: type, where: str):
    if key not in table:
        raise UserError(f"{where}: {key} is missing, needs {_KINDS[kind]}")
    if type(table[key]) is not kind:
        raise UserError(f"{where}: {key} is {table[key]!r}, needs {_KINDS[kind]}")
    return table[key]


_KINDS = {str: "a text", int: "a whole number", list: "a list"}
