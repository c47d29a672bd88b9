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
    """A title and tables, as a notebook shows them."""
    return f"<p><b>{_html.escape(title)}</b></p>" + "".join(_html_table(table) for table in tables)


def _html_table(table: Table) -> str:
    body = "".join(_html_row(row, "td") for row in table.rows)
    return f"<table><thead>{_html_row(table.head, 'th')}</thead><tbody>{body}</tbody></table>"


def _html_row(row: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{_html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
