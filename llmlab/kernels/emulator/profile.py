"""What a kernel moved: by line, by array, and lane by lane for a request that one wants to see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from . import tables as tables_module
from .tables import Table

SECTOR = 32  # bytes that global memory delivers at once


@dataclass(frozen=True)
class Request:
    """One warp's access by one instruction: where each of the 32 lanes reached.

    ``offsets[lane]`` counts bytes from the array's start; it is None for a lane that did not take part.
    ``bytes`` is the size of one lane's access.
    """

    array: str
    space: str
    access: str
    bytes: int
    block: tuple[int, int, int]
    warp: int
    offsets: tuple[int | None, ...]
    sectors: int
    wavefronts: int

    @property
    def sector_numbers(self) -> list[int]:
        """The 32-byte sectors that the request touches, counted from the array's start."""
        touched = set()
        for offset in self.offsets:
            if offset is not None:
                touched.update(range(offset // SECTOR, (offset + self.bytes - 1) // SECTOR + 1))
        return sorted(touched)

    @property
    def banks(self) -> tuple[int | None, ...]:
        """The bank of shared memory in which each lane's access begins, if the array begins in bank 0."""
        return tuple(None if offset is None else offset // 4 % 32 for offset in self.offsets)


@dataclass(frozen=True)
class LineTraffic:
    """What one line of the kernel asked of one array.

    Attributes:
        requests: instructions that a warp executed.
        lanes: accesses of single threads.
        bytes: distinct bytes of each request, added up over the requests.
        sectors, ideal_sectors: 32-byte sectors that the requests needed, and the fewest possible.
        wavefronts, ideal_wavefronts: passes through shared memory, and the fewest possible; the others
            are bank conflicts.
        first, worst: the first request, and the one that needed the most sectors or wavefronts.
    """

    file: str
    line: int
    text: str
    array: str
    space: str  # "global" or "shared"
    access: str  # "read", "write" or "atomic"
    requests: int = 0
    lanes: int = 0
    bytes: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    first: Request | None = field(default=None, repr=False)
    worst: Request | None = field(default=None, repr=False)

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests

    @property
    def ideal_sectors_per_request(self) -> float:
        return self.ideal_sectors / self.requests

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts beyond the fewest possible."""
        return self.wavefronts - self.ideal_wavefronts


@dataclass(frozen=True)
class ArrayTraffic:
    """What was moved between the kernel and one array in global memory, in bytes.

    ``read`` and ``written`` add up the distinct bytes of every request, so an array that is read once has
    ``read == size``; ``touched_read`` and ``touched_written`` count each byte of the array once.
    """

    name: str
    size: int
    read: int = 0
    written: int = 0
    touched_read: int = 0
    touched_written: int = 0

    @property
    def times_read(self) -> float:
        """How often the bytes that were read at all were read."""
        return self.read / self.touched_read if self.touched_read else 0.0

    @property
    def times_written(self) -> float:
        return self.written / self.touched_written if self.touched_written else 0.0


@dataclass(frozen=True)
class Profile:
    """What one launch moved. It prints as a table, and shows as one in a notebook.

    >>> import numpy as np
    >>> from llmlab.kernels import emulator
    >>> module = emulator.Module('''
    ... extern "C" __global__ void copy(float* y, const float* x, int stride) {
    ...   y[threadIdx.x] = x[threadIdx.x * stride];
    ... }
    ... ''', mode="profile")
    >>> x, y = np.zeros(128, np.float32), np.zeros(32, np.float32)
    >>> profile = module.launch("copy", 1, 32, [y, x, 4])
    >>> [(line.array, line.sectors, line.ideal_sectors) for line in profile.lines]
    [('x', 16, 4), ('y', 4, 4)]
    >>> profile.arrays["x"].read, profile.arrays["y"].written
    (128, 128)
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lines: tuple[LineTraffic, ...]
    arrays: dict[str, ArrayTraffic]
    barriers: int
    warp_meetings: int

    def at(self, line: int, array: str | None = None, access: str | None = None) -> LineTraffic:
        """The traffic of a line of the kernel's text.

        Raises:
            LookupError: if there is none, or more than one; name the array or the access then.
        """
        fits = [
            t for t in self.lines
            if t.line == line and array in (None, t.array) and access in (None, t.access)
        ]  # fmt: skip
        if len(fits) != 1:
            found = ", ".join(
                f"{t.access} of {t.array}" for t in fits or [t for t in self.lines if t.line == line]
            )
            raise LookupError(
                f"line {line} has {len(fits)} such accesses ({found or 'none'}); "
                "name the array and the access"
            )
        return fits[0]

    def total(self, space: str, access: str | None = None, array: str | None = None) -> LineTraffic:
        """The sum over lines for ``"global"`` or ``"shared"`` memory."""
        fits = [
            t
            for t in self.lines
            if t.space == space and access in (None, t.access) and array in (None, t.array)
        ]
        return added(fits, LineTraffic("", 0, "", array or "", space, access or ""))

    @property
    def bytes_read(self) -> int:
        """From global memory, the distinct bytes of each request."""
        return sum(array.read for array in self.arrays.values())

    @property
    def bytes_written(self) -> int:
        return sum(array.written for array in self.arrays.values())

    @property
    def bank_conflicts(self) -> int:
        return self.total("shared").bank_conflicts

    def table(self) -> str:
        """The lines and the arrays as text."""
        tables = [tables_module.text(table) for table in (self._line_table(), self._array_table())]
        return "\n\n".join([self._title(), *tables])

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return tables_module.html(self._title(), [self._line_table(), self._array_table()])

    def _title(self) -> str:
        barriers = f"{self.barriers:,} barrier{'' if self.barriers == 1 else 's'}"
        return f"{self.kernel}: grid {self.grid}, block {self.block}, {barriers}"

    def _line_table(self) -> Table:
        head = ["line", "", "access", "requests", "sectors/request", "ideal", "bank conflicts"]
        return Table(head, [_line_row(traffic) for traffic in self.lines], left=3)

    def _array_table(self) -> Table:
        head = ["array", "bytes", "read", "times", "written", "times"]
        return Table(head, [_array_row(array) for array in self.arrays.values()], left=1)


def _line_row(t: LineTraffic) -> list[str]:
    where = [f"{t.file}:{t.line}", t.text.strip()]
    if t.space == "shared":
        return [*where, f"{t.access} shared {t.array}", f"{t.requests:,}", "", "", f"{t.bank_conflicts:,}"]
    each, ideal = f"{t.sectors_per_request:.1f}", f"{t.ideal_sectors_per_request:.1f}"
    return [*where, f"{t.access} {t.array}", f"{t.requests:,}", each, ideal, ""]


def _array_row(a: ArrayTraffic) -> list[str]:
    read, written = [f"{a.read:,}", f"{a.times_read:.2f}"], [f"{a.written:,}", f"{a.times_written:.2f}"]
    return [a.name, f"{a.size:,}", *read, *written]


def added(traffic: Iterable[LineTraffic], empty: LineTraffic) -> LineTraffic:
    """The counts of several, with the names of ``empty``."""
    parts = list(traffic)
    counts = ("requests", "lanes", "bytes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")
    worst = max(
        (p.worst for p in parts if p.worst),
        key=lambda r: r.sectors if r.space == "global" else r.wavefronts,
        default=None,
    )
    return LineTraffic(
        empty.file, empty.line, empty.text, empty.array, empty.space, empty.access,
        **{name: sum(getattr(part, name) for part in parts) for name in counts},
        first=parts[0].first if parts else None,
        worst=worst,
    )  # fmt: skip
