"""Corpora by name or by path: embedded Python documentation, a fetched classic, or your own text."""

import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from llmlab.errors import UserError

TEXT_SUFFIXES = (".txt", ".md", ".rst")


class Corpus(NamedTuple):
    """A text, as bytes, and a short name that is fit for a folder."""

    name: str
    text: bytes


def pydoc() -> bytes:
    """The documentation topics that ship inside every CPython: about 466 kB of technical English.

    The topics are joined in sorted order by blank lines; the text differs a little from Python to Python.

    >>> pydoc()[:25]
    b'The "assert" statement\\n**'
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


def tinyshakespeare() -> bytes:
    """Lines from Shakespeare's plays (1.1 MB, as collected by Andrej Karpathy for char-rnn), fetched once."""
    import pooch

    url = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
    checksum = "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")
    try:
        path = pooch.retrieve(url, checksum, fname="tinyshakespeare.txt", path=pooch.os_cache("llmlab"))
    except (OSError, ValueError) as error:  # no network, or a file that is not the one we know
        raise UserError(
            f"--data tinyshakespeare: could not fetch {url} ({type(error).__name__}): it needs a network "
            "the first time; without one, train on `--data pydoc` or on your own text files"
        ) from error
    finally:
        logger.setLevel(level)
    return Path(path).read_bytes()


NAMED: dict[str, Callable[[], bytes]] = {"pydoc": pydoc, "tinyshakespeare": tinyshakespeare}


def load(sources: Sequence[str]) -> Corpus:
    """Read a corpus: one name of `NAMED`, or files, folders and patterns, joined by blank lines.

    Of a folder, every .txt, .md and .rst file below it is read, in sorted order.

    Raises `UserError` for an unknown name, a missing or unreadable file, a folder without text, and an
    empty corpus.

    >>> load(["pydoc"]).name
    'pydoc'
    """
    if len(sources) == 1 and sources[0] in NAMED:
        return Corpus(sources[0], NAMED[sources[0]]())
    paths = [path for source in sources for path in text_files(source)]
    try:
        text = b"\n\n".join(path.read_bytes() for path in paths)
    except OSError as error:
        raise UserError(f"--data: cannot read {error.filename}: {error.strerror}") from error
    if not text.strip():
        raise UserError(f"--data {' '.join(sources)}: the corpus is empty; give files with text in them")
    return Corpus(folder_name(sources[0]), text)


def text_files(source: str) -> list[Path]:
    """The text files that a path, a folder or a pattern stands for, sorted."""
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.suffix in TEXT_SUFFIXES and p.is_file())
        if not found:
            raise UserError(f"--data {source}: no {', '.join(TEXT_SUFFIXES)} file in this folder")
        return found
    found = sorted(Path(p) for p in glob.glob(str(path), recursive=True) if os.path.isfile(p))
    if not found:
        raise UserError(f"--data {source}: no such file or folder, nor a known corpus ({', '.join(NAMED)})")
    return found


def folder_name(source: str) -> str:
    """A folder-safe name for a corpus read from `source`.

    >>> folder_name("texts/My Novel.txt")
    'my-novel'
    """
    stem = Path(source).expanduser().resolve().stem.lower()
    return "-".join("".join(c if c.isalnum() else " " for c in stem).split()) or "text"
