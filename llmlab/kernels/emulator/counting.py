"""From the engine's counts to a `Profile` in terms of the kernel's text."""

from __future__ import annotations

import ctypes
from collections import defaultdict

from . import native
from .buffers import Stretch
from .native import Access, Space
from .profile import ArrayTraffic, LineTraffic, Profile, Request, added
from .report import Report

_SPACES = {Space.GLOBAL: "global", Space.SHARED: "shared"}
_ACCESSES = {Access.READ: "read", Access.WRITE: "write", Access.ATOMIC: "atomic"}


def read_profile(library: ctypes.CDLL, report: Report) -> Profile:
    """The profile of the launch that has just ended."""
    counts = native.Counts()
    library.emulated_profile(ctypes.byref(counts))
    report.symbols.look_up(pc for i in range(counts.instruction_count) for pc in _pcs(counts.instructions[i]))
    names = [_stretch_name(stretch) for stretch in report.memory.stretches]
    instructions = [
        _line_traffic(counts.instructions[i], names, report) for i in range(counts.instruction_count)
    ]
    by_line: dict[tuple, list[LineTraffic]] = defaultdict(list)
    for traffic in instructions:
        by_line[traffic.file, traffic.line, traffic.space, traffic.array, traffic.access].append(traffic)
    lines = [added(parts, parts[0]) for parts in by_line.values()]
    lines.sort(key=lambda t: (t.file != report.symbols.main_file, t.file, t.line))
    arrays = {
        name: _array_traffic(name, stretch, counts.regions[i], lines)
        for i, (name, stretch) in enumerate(zip(names, report.memory.stretches, strict=True))
    }
    order = {p.name: i for i, p in enumerate(report.parameters)}
    arrays = dict(sorted(arrays.items(), key=lambda item: order.get(item[0].split("/")[0], 0)))
    return Profile(
        report.kernel, report.grid, report.block, tuple(lines), arrays, counts.barriers, counts.meetings
    )


def _stretch_name(stretch: Stretch) -> str:
    """The parameter that points there; several, where arrays share memory."""
    ordered = sorted(stretch.arguments, key=lambda a: a.position)
    return "/".join(argument.parameter.name for argument in ordered)


def _pcs(counted: native.Instruction) -> list[int | None]:
    return list(counted.place.pcs[: counted.place.depth])


def _line_traffic(counted: native.Instruction, names: list[str], report: Report) -> LineTraffic:
    place = report.symbols.user_line(report.symbols.chain(_pcs(counted)))
    file, line = (place.file, place.line) if place else (report.symbols.main_file, 0)
    space, access = _SPACES[Space(counted.space)], _ACCESSES[Access(counted.access)]
    array = names[counted.region] if space == "global" else counted.name.decode()

    def request(native_request: native.Request) -> Request:
        lanes = native_request.lanes
        offsets = tuple(native_request.offsets[i] if lanes >> i & 1 else None for i in range(32))
        return Request(
            array, space, access, counted.bytes, tuple(native_request.block), native_request.warp, offsets,
            native_request.sectors, native_request.wavefronts,
        )  # fmt: skip

    return LineTraffic(
        file, line, report.sources.get(file, {}).get(line, ""), array, space, access,
        requests=counted.requests,
        lanes=counted.lanes,
        bytes=counted.distinct_bytes,
        sectors=counted.sectors,
        ideal_sectors=counted.ideal_sectors,
        wavefronts=counted.wavefronts,
        ideal_wavefronts=counted.ideal_wavefronts,
        first=request(counted.first),
        worst=request(counted.worst),
    )  # fmt: skip


def _array_traffic(
    name: str, stretch: Stretch, region: native.RegionTraffic, lines: list[LineTraffic]
) -> ArrayTraffic:
    own = [t for t in lines if t.space == "global" and t.array == name]
    return ArrayTraffic(
        name,
        stretch.bytes,
        read=sum(t.bytes for t in own if t.access != "write"),
        written=sum(t.bytes for t in own if t.access != "read"),
        touched_read=region.bytes_read,
        touched_written=region.bytes_written,
    )
