"""The base of every widget: its JavaScript and style sheet from files, and a repr that never varies."""

import re
from pathlib import Path

import anywidget

FOLDER = Path(__file__).parent


def module(name: str) -> str:
    """The text of `name` with `common.js`, which it imports, in front: one module, as a page needs it.

    >>> "import {" in module("layernorm.js")
    False
    """
    common, own = ((FOLDER / file).read_text(encoding="utf-8") for file in ("common.js", name))
    own = re.sub(r'^import \{.*\} from "\./common\.js";\n', "", own, flags=re.MULTILINE)
    return common.replace("export function", "function") + "\n" + own


class Widget(anywidget.AnyWidget):
    """A widget whose JavaScript computes. A subclass sets `_esm = module("name.js")` and its traits."""

    _css = (FOLDER / "common.css").read_text(encoding="utf-8")

    def __repr__(self) -> str:
        """Only the name: strict nbval compares the repr, and a model id would be another in every run."""
        return f"{type(self).__name__}()"
