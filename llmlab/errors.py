"""The one exception that is written for people."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """What a person can repair: the message is one line, with what was given, what is needed, and how.

    The command line prints it without a traceback and exits with code 2. Everything else is a bug, and
    shows where.
    """


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint at what was meant.

    >>> suggestion("dropuot", ["dropout", "steps"])
    "; did you mean 'dropout'?"
    """
    close = difflib.get_close_matches(name, known := list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
