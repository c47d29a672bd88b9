"""Lines of addresses by the ``pyelftools`` package, for machines without ``addr2line``."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def available() -> bool:
    """Whether the package is installed."""
    import importlib.util

    return importlib.util.find_spec("elftools") is not None


def places(library: Path, addresses: Sequence[int]) -> list[list[str]]:
    """For each address the places it comes from, innermost first, as ``file:line``."""
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as file:
        info = ELFFile(file).get_dwarf_info()
        units = [_Unit(info, unit) for unit in info.iter_CUs()]
        return [next((found for unit in units if (found := unit.places(a))), []) for a in addresses]


class _Unit:
    """One compiled text: its table of lines and its inlined calls."""

    def __init__(self, info: Any, unit: Any):
        self._info, self._unit = info, unit
        self._program = info.line_program_for_CU(unit)
        states = [entry.state for entry in self._program.get_entries() if entry.state is not None]
        self._states = sorted(states, key=lambda state: (state.address, not state.end_sequence))
        self._starts = [state.address for state in self._states]

    def places(self, address: int) -> list[str]:
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or self._states[at].end_sequence:
            return []
        calls = self._calls(self._unit.get_top_DIE(), address)
        inner = [(self._states[at].file, self._states[at].line)]
        return [f"{self._file(file)}:{line}" for file, line in inner + list(reversed(list(calls)))]

    def _file(self, index: int) -> str:
        first = 0 if self._program["version"] >= 5 else 1
        return self._program["file_entry"][index - first].name.decode()

    def _calls(self, die: Any, address: int) -> Iterator[tuple[int, int]]:
        """Where the functions inlined at the address were called, outermost first."""
        for child in die.iter_children():
            if child.tag not in ("DW_TAG_subprogram", "DW_TAG_inlined_subroutine", "DW_TAG_lexical_block",
                                 "DW_TAG_namespace"):  # fmt: skip
                continue
            if child.tag != "DW_TAG_namespace" and not self._covers(child, address):
                continue
            if child.tag == "DW_TAG_inlined_subroutine":
                yield child.attributes["DW_AT_call_file"].value, child.attributes["DW_AT_call_line"].value
            yield from self._calls(child, address)

    def _covers(self, die: Any, address: int) -> bool:
        attributes = die.attributes
        if "DW_AT_low_pc" in attributes and "DW_AT_high_pc" in attributes:
            low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
            end = high.value if high.form == "DW_FORM_addr" else low + high.value
            return low <= address < end
        if "DW_AT_ranges" not in attributes:
            return False
        base = self._unit.get_top_DIE().attributes.get("DW_AT_low_pc")
        start = base.value if base else 0
        lists = self._info.range_lists()
        for entry in lists.get_range_list_at_offset(attributes["DW_AT_ranges"].value, cu=self._unit):
            if hasattr(entry, "base_address"):
                start = entry.base_address
                continue
            offset = 0 if entry.is_absolute else start
            if entry.begin_offset + offset <= address < entry.end_offset + offset:
                return True
        return False
