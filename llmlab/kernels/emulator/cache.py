"""Compiled modules on disk, by content: what is compiled once is never compiled again."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def folder() -> Path:
    """Where compiled modules are kept: ``$LLMLAB_EMULATOR_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("LLMLAB_EMULATOR_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "llmlab" / "emulator"


def key(*parts: str) -> str:
    """A name made from everything that a compiled file depends on."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def stored(name: str, make: Callable[[Path], None]) -> Path:
    """The file of that name in the cache; if it is not there, ``make`` writes it first.

    ``make`` writes to a path of its own, which is then renamed: a half-written file is never seen, and of two
    processes that make the same file at once, the second replaces it by its equal. A cache that cannot be
    written is read, and what it lacks is kept for the life of this process.
    """
    path = folder() / name
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=f".{name}.", dir=path.parent)
    except OSError:
        path = _private_folder() / name
        if path.exists():
            return path
        handle, draft = tempfile.mkstemp(prefix=f".{name}.", dir=path.parent)
    os.close(handle)
    try:
        make(Path(draft))
        os.replace(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
    return path


@functools.cache
def _private_folder() -> Path:
    private = tempfile.mkdtemp(prefix="llmlab-emulator-")
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return Path(private)
