"""Kernel text: llmlab's own files, and includes of them put in place."""

from __future__ import annotations

import functools
import re
from pathlib import Path

FOLDER = Path(__file__).parent
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"[^\n]*', re.MULTILINE)


def with_includes(code: str, name: str) -> str:
    """Return ``code`` with each ``#include "file"`` of llmlab's kernel folder replaced by that file, once.

    Compilers' caches look at the text alone, so the text has to hold all that it depends on: a change to
    ``common.cuh`` then recompiles what includes it. ``#line`` keeps messages on the files as written; an
    include of any other file is left for the compiler to find.
    """
    return _inline(code, name, set())


def _inline(code: str, name: str, seen: set[str]) -> str:
    def replace(include: re.Match) -> str:
        file = include[1]
        if not (FOLDER / file).is_file():
            return include[0]
        line_after = code.count("\n", 0, include.end()) + 2
        body = "" if file in seen else _inline(read(file), file, seen)
        seen.add(file)
        return f'{body}\n#line {line_after} "{name}"' if body else ""

    return f'#line 1 "{name}"\n' + _INCLUDE.sub(replace, code.replace("#pragma once", ""))


@functools.cache
def read(file: str) -> str:
    """The text of a file in llmlab's kernel folder."""
    return (FOLDER / file).read_text(encoding="utf-8")
