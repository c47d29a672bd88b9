"""A table as text and as HTML."""

from __future__ import annotations

import html as _html
from collections.abc import Sequence
from dataclasses import dataclass

WIDEST = 64  # characters of a cell of text


@dataclass(frozen=True)
class Table:
    """A head and rows of text; the first ``left`` columns are set left, the others right."""

    head: list[str]
    rows: list[list[str]]
    left: int


def text(table: Table) -> str:
    """The table with its columns aligned; long cells are cut."""
    rows = [[_cut(cell) for cell in row] for row in [table.head, *table.rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.head))]
    return "\n".join(_aligned(row, widths, table.left) for row in rows)


def _aligned(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    places = enumerate(zip(row, widths, strict=True))
    cells = [cell.ljust(width) if i < left else cell.rjust(width) for i, (cell, width) in places]
    return "  ".join(cells).rstrip()


def _cut(cell: str) -> str:
    return cell if len(cell) <= WIDEST else f"{cell[: WIDEST - 3]}..."


def html(title: str, tables: Sequence[Table]) -> str:
    """A title and tables, as a notebook shows them, in the page's own colours."""
    return f"<p><b>{_html.escape(title)}</b></p>" + "".join(_html_table(table) for table in tables)


def _html_table(table: Table) -> str:
    # Notebooks and themes know the class `dataframe`: they style it, and leave it dark on a dark page.
    head = _html_row(table.head, "th", table.left)
    body = "".join(_html_row(row, "td", table.left) for row in table.rows)
    start = '<table class="dataframe" style="margin: 0 0 1em; font-size: 80%">'
    return f"{start}<thead>{head}</thead><tbody>{body}</tbody></table>"


def _html_row(row: Sequence[str], tag: str, left: int) -> str:
    cells = (
        f'<{tag} style="{_style(cell, "left" if i < left else "right")}">{_html.escape(cell)}</{tag}>'
        for i, cell in enumerate(row)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _style(cell: str, side: str) -> str:
    # A line of code may fold, but not to a word a line.
    return f"text-align: {side}; padding: 0.2em 0.4em; min-width: {20 if len(cell) > 20 else 0}ch"
