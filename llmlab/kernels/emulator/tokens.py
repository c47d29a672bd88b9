"""C++ text cut into tokens, as far as finding declarations needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Token(NamedTuple):
    text: str
    start: int
    end: int


_COMMENT_OR_LITERAL = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/)|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
    re.DOTALL,
)
_TOKEN = re.compile(
    r'(?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\w+|::|[^\s\w]',
    re.MULTILINE,
)


def without_comments(code: str) -> str:
    """The text with every comment turned into blanks, so that places and lines stay."""

    def blank(match: re.Match) -> str:
        if match["comment"] is None:
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return _COMMENT_OR_LITERAL.sub(blank, code)


def tokens(code: str) -> Iterator[Token]:
    """The tokens of text without comments; preprocessor lines are left out."""
    for match in _TOKEN.finditer(code):
        if match["directive"] is None:
            yield Token(match[0], match.start(), match.end())


def closing(found: list[Token], opening: int) -> int:
    """The place in the list of the bracket that closes the one at ``opening``."""
    pairs = {"(": ")", "[": "]", "{": "}", "<": ">"}
    opener, closer = found[opening].text, pairs[found[opening].text]
    depth = 0
    for i in range(opening, len(found)):
        if found[i].text == opener:
            depth += 1
        elif found[i].text == closer:
            depth -= 1
            if depth == 0:
                return i
    return len(found) - 1


def split_at_commas(text: str) -> list[str]:
    """Parts between the commas that stand outside all brackets."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        if character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]
