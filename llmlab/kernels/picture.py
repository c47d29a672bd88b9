"""A picture of coalescing: where a warp's 32 lanes fall in memory, and what has to move for them."""

from __future__ import annotations

from typing import Any

LINE = 128  # bytes of a cache line
SECTOR = 32  # bytes: the least that moves between memory and a multiprocessor

_USED = "#9BCBEB"  # Okabe and Ito's blue, light enough for numbers on it
_WASTED = "#E9E9E9"
_INK = "#222222"
_GREY = "#767676"
_MOST_LINES = 8  # drawn; a picture of a request that touches more is cut, and says so


def warp_accesses(request: Any, ax: Any = None) -> Any:
    """Draw one request of a warp: a row for each 128-byte line of memory that it touches.

    What a lane asks for is blue and bears the lane's number. The rest of each 32-byte sector is grey and
    hatched: it moves as well, for nothing. Sectors that stay where they are are left white.

    Args:
        request: has ``array`` (a name), ``is_write``, ``size`` (bytes a lane), and ``offsets``: for each lane
            the bytes from the array's start, or None for a lane that takes no part.
        ax: matplotlib axes to draw on; new ones if None.

    Returns:
        The axes.
    """
    lanes_at = _lanes_by_offset(request.offsets)
    touched = {byte // SECTOR for start in lanes_at for byte in (start, start + request.size - 1)}
    lines = sorted({sector * SECTOR // LINE for sector in touched})
    shown = lines[:_MOST_LINES]
    if ax is None:
        ax = _axes(len(shown))
    for row, line in enumerate(shown):
        for sector in range(line * LINE // SECTOR, (line + 1) * LINE // SECTOR):
            _box(ax, row, sector * SECTOR - line * LINE, SECTOR, sector in touched)
    for start, lanes in lanes_at.items():
        if start // LINE in shown:
            _lane(ax, shown.index(start // LINE), start % LINE, request.size, lanes)
    _label(ax, request, shown, len(lines), len(touched), len(lanes_at))
    return ax


def _lanes_by_offset(offsets: Any) -> dict[int, list[int]]:
    lanes_at: dict[int, list[int]] = {}
    for lane, offset in enumerate(offsets):
        if offset is not None:
            lanes_at.setdefault(int(offset), []).append(lane)
    return lanes_at


def _axes(rows: int) -> Any:
    import matplotlib.pyplot as plt

    height = 0.95 + 0.3 * rows
    return plt.subplots(figsize=(7.0, height), layout="constrained", facecolor="white", dpi=144)[1]


def _box(ax: Any, row: int, start: int, width: int, moved: bool) -> None:
    from matplotlib.patches import Rectangle

    style = (
        {"facecolor": _WASTED, "hatch": "////", "edgecolor": "#BBBBBB"} if moved else {"facecolor": "white"}
    )
    ax.add_patch(Rectangle((start, row - 0.4), width, 0.8, linewidth=0, **style))
    ax.add_patch(
        Rectangle((start, row - 0.4), width, 0.8, fill=False, edgecolor=_GREY, linewidth=0.8, zorder=3)
    )


def _lane(ax: Any, row: int, start: int, size: int, lanes: list[int]) -> None:
    from matplotlib.patches import Rectangle

    box = {"facecolor": _USED, "edgecolor": "white", "linewidth": 0.6, "zorder": 2}
    ax.add_patch(Rectangle((start, row - 0.4), size, 0.8, **box))
    name = str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}–{lanes[-1]}"
    small = size < 4 or len(name) > 2 * (size // 4)
    turn = 90 if small and len(name) > 1 else 0
    ax.text(start + size / 2, row, name, ha="center", va="center", rotation=turn, color=_INK,
            fontsize=5.5 if small else 7, zorder=4)  # fmt: skip


def _label(ax: Any, request: Any, shown: list[int], lines: int, sectors: int, places: int) -> None:
    asked = places * request.size
    active = sum(offset is not None for offset in request.offsets)
    does = "writes" if request.is_write else "reads"
    used = 100 * asked / (sectors * SECTOR)
    moves = f"{sectors} sector{'s' * (sectors > 1)}, {used:.3g} % of what moves is used"
    title = f"A warp {does} {request.array}: {active} lanes × {request.size} bytes, {moves}"
    ax.set_title(title, loc="left", fontsize=9, color=_INK)
    cut = "" if lines == len(shown) else f"; {lines - len(shown)} more lines not shown"
    ax.set(xlim=(-1, LINE + 1), ylim=(len(shown) - 0.4, -0.6), xticks=range(0, LINE + 1, SECTOR))
    ax.set_yticks(range(len(shown)), [f"byte {line * LINE}" for line in shown])
    ax.set_xlabel(f"byte within a line of 128; a box is a sector of 32{cut}", fontsize=8, color=_INK)
    ax.tick_params(length=0, labelsize=8, labelcolor=_INK)
    for spine in ax.spines.values():
        spine.set_visible(False)
