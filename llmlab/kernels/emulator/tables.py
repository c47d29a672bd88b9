"""A table as text and as HTML."""

from __future__ import annotations

import html as _html
from collections.abc import Sequence
from dataclasses import dataclass

WIDEST = 64  # characters of a cell of text


@dataclass(frozen=True)
class Table:
    """A head and rows of text; the first ``left`` columns are set left, the others right; one may hold code."""

    head: list[str]
    rows: list[list[str]]
    left: int
    code: int | None = None


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
    """A title and tables, as a notebook shows them."""
    return f"<p><b>{_html.escape(title)}</b></p>" + "".join(_html_table(table) for table in tables)


def _html_table(table: Table) -> str:
    head = _html_row(table, table.head, "th")
    body = "".join(_html_row(table, row, "td") for row in table.rows)
    return f'<table style="margin: 0.5em 0 1em 0; color: inherit"><thead>{head}</thead><tbody>{body}</tbody></table>'


def _html_row(table: Table, row: Sequence[str], tag: str) -> str:
    cells = ""
    for i, cell in enumerate(row):
        side, shown = "left" if i < table.left else "right", _html.escape(cell)
        if i == table.code and cell:
            shown = f'<code style="white-space: pre; background: none; color: inherit">{shown}</code>'
        cells += f'<{tag} style="text-align: {side}; white-space: nowrap">{shown}</{tag}>'
    return f'<tr style="background: none; color: inherit">{cells}</tr>'
