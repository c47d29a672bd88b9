"""Rows under headings, rendered by whoever shows the chapter, in its own theme."""

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Display a table; numbers stand right, everything else left. Round before: what you pass is shown."""
    from IPython.display import Markdown, display

    display(Markdown(markdown(headings, rows)))


def markdown(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The table as Markdown. Raises `ValueError` for a row of another length.

    >>> print(markdown(["op", "bytes", "of them read"], [["gelu", 4096, ""], ["softmax", 8192, "50 %"]]))
    | op | bytes | of them read |
    |:---|---:|---:|
    | gelu | 4,096 |  |
    | softmax | 8,192 | 50 % |
    """
    rows = [list(row) for row in rows]
    for row in rows:
        if len(row) != len(headings):
            raise ValueError(f"a row has {len(row)} entries, needs {len(headings)} like the headings: {row}")
    columns = [[row[i] for row in rows if row[i] != ""] for i in range(len(headings))]
    numeric = [bool(column) and all(map(_is_number, column)) for column in columns]
    lines = [headings, *([_text(entry) for entry in row] for row in rows)]
    rule = "|" + "|".join("---:" if right else ":---" for right in numeric) + "|"
    body = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([body[0], rule, *body[1:]])


def _is_number(entry: object) -> bool:
    """A number, or a text that reads as one ("1.4e-07", "12 %")."""
    if isinstance(entry, str):
        return entry[:1].isdigit() or entry[:2].lstrip("-")[:1].isdigit()
    return hasattr(entry, "__float__")


def _text(entry: object) -> str:
    return f"{entry:,}" if isinstance(entry, int) else str(entry).replace("|", r"\|")
