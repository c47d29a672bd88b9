"""A picture of coalescing: where a warp's 32 lanes fall in memory, and what has to move for them."""

from __future__ import annotations

from typing import Any

LINE = 128  # bytes of a row: a cache line of global memory, or one word of each bank of shared memory
SECTOR = 32  # bytes: the least that moves between global memory and a multiprocessor
BANK = 4  # bytes: what a bank of shared memory gives at once

_USED = "#9BCBEB"  # Okabe and Ito's blue, light enough for numbers on it
_WASTED = "#E9E9E9"
_INK = "#222222"
_GREY = "#767676"
_MOST_ROWS = 8  # drawn; a picture of a request that touches more is cut, and says so


def warp_accesses(request: Any, ax: Any = None) -> Any:
    """Draw one request of a warp, as a profile's lines hold it in ``first`` and ``worst``.

    Each row is 128 bytes of the array. What a lane asks for is blue and bears the lane's number. In global
    memory the rest of each 32-byte sector is grey and hatched: it moves as well, for nothing; sectors that
    stay are white. In shared memory a column is a bank: lanes of one column but of different rows wait for
    each other.

    Args:
        request: an ``emulator`` profile's ``Request``.
        ax: matplotlib axes to draw on; new ones if None.

    Returns:
        The axes.
    """
    lanes_at = _lanes_by_offset(request.offsets)
    rows = sorted({byte // LINE for start in lanes_at for byte in (start, start + request.bytes - 1)})
    shown = rows[:_MOST_ROWS]
    if ax is None:
        ax = _axes(len(shown))
    is_global = request.space == "global"
    touched = set(request.sector_numbers) if is_global else set()
    width = SECTOR if is_global else BANK
    for y, row in enumerate(shown):
        for start in range(0, LINE, width):
            _box(ax, y, start, width, (row * LINE + start) // SECTOR in touched)
    for start, lanes in lanes_at.items():
        if start // LINE in shown:
            _lane(ax, shown.index(start // LINE), start % LINE, request.bytes, lanes)
    ax.set_title(_title(request, len(lanes_at)), loc="left", fontsize=9, color=_INK)
    _label(ax, is_global, shown, len(rows))
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


def _box(ax: Any, y: int, start: int, width: int, moved: bool) -> None:
    from matplotlib.patches import Rectangle

    if moved:
        hatched = {"facecolor": _WASTED, "hatch": "////", "edgecolor": "#BBBBBB", "linewidth": 0}
        ax.add_patch(Rectangle((start, y - 0.4), width, 0.8, **hatched))
    frame = {"fill": False, "edgecolor": _GREY, "linewidth": 0.8, "zorder": 3}
    ax.add_patch(Rectangle((start, y - 0.4), width, 0.8, **frame))


def _lane(ax: Any, y: int, start: int, size: int, lanes: list[int]) -> None:
    from matplotlib.patches import Rectangle

    box = {"facecolor": _USED, "edgecolor": "white", "linewidth": 0.6, "zorder": 2}
    ax.add_patch(Rectangle((start, y - 0.4), size, 0.8, **box))
    name = str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}–{lanes[-1]}"
    small = size < 4 or len(name) > 2 * (size // 4)
    turn = 90 if small and len(name) > 1 else 0
    style = {"fontsize": 5.5 if small else 7, "color": _INK, "zorder": 4}
    ax.text(start + size / 2, y, name, ha="center", va="center", rotation=turn, **style)


def _title(request: Any, places: int) -> str:
    active = sum(offset is not None for offset in request.offsets)
    does = {"read": "reads", "write": "writes", "atomic": "changes"}[request.access]
    asks = f"A warp {does} {request.array}: {active} lanes × {request.bytes} bytes"
    if request.space != "global":
        return f"{asks}, {request.wavefronts} pass{'es' * (request.wavefronts > 1)} through shared memory"
    used = 100 * places * request.bytes / (request.sectors * SECTOR)
    sectors = f"{request.sectors} sector{'s' * (request.sectors > 1)}"
    return f"{asks}, {sectors}, {used:.3g} % of what moves is used"


def _label(ax: Any, is_global: bool, shown: list[int], rows: int) -> None:
    step = SECTOR if is_global else 4 * BANK
    ticks = range(0, LINE + 1, step) if is_global else range(0, LINE, step)
    ax.set(xlim=(-1, LINE + 1), ylim=(len(shown) - 0.4, -0.6))
    if is_global:
        ax.set_xticks(ticks)
    else:
        ax.set_xticks([start + BANK / 2 for start in ticks], [start // BANK for start in ticks])
    ax.set_yticks(range(len(shown)), [f"byte {row * LINE}" for row in shown])
    what = "byte within a line of 128; a box is a sector of 32" if is_global else "bank of shared memory"
    cut = "" if rows == len(shown) else f"; {rows - len(shown)} more rows not shown"
    ax.set_xlabel(what + cut, fontsize=8, color=_INK)
    ax.tick_params(length=0, labelsize=8, labelcolor=_INK)
    for spine in ax.spines.values():
        spine.set_visible(False)
