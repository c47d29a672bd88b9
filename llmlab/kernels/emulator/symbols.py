"""From the address of an instruction to the lines of the kernel's text that it comes from."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import dwarf


@dataclass(frozen=True)
class Location:
    """A line of the kernel's text."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Symbols:
    """The lines of one compiled module. ``files`` are the names of the kernel's own text and its includes."""

    def __init__(self, path: Path, library: ctypes.CDLL, files: Sequence[str], main_file: str):
        self._path = path
        self._files = {Path(file).name: file for file in files}
        self.main_file = main_file
        self._lines: dict[int, list[Location]] = {}
        library.emulated_image_base.restype = ctypes.c_void_p
        self._base = library.emulated_image_base()

    def chain(self, pcs: Sequence[int | None]) -> list[Location]:
        """The places from the innermost call outwards, inlined calls included, within the kernel's text."""
        self.look_up(pcs)
        chain: list[Location] = []
        for pc in pcs:
            for location in self._lines.get(pc or 0, []):
                if not chain or chain[-1] != location:
                    chain.append(location)
        return chain

    def user_line(self, chain: Sequence[Location]) -> Location | None:
        """Of a chain, the innermost place in the main text; failing that, the innermost of all."""
        return next((place for place in chain if place.file == self.main_file), chain[0] if chain else None)

    def look_up(self, pcs: Iterable[int | None]) -> None:
        """Ask for many addresses at once what `chain` will be asked one by one."""
        unknown = sorted({pc for pc in pcs if pc} - self._lines.keys())
        # What was recorded is where the call returns to: one byte before lies the instruction itself.
        addresses = [pc - self._base - 1 for pc in unknown]
        for pc, answers in zip(unknown, _places(self._path, addresses), strict=False):
            self._lines[pc] = self._own(answers)

    def _own(self, answers: list[str]) -> list[Location]:
        places = []
        for answer in answers:
            file, _, line = answer.partition(" (")[0].rpartition(":")
            name = self._files.get(Path(file).name)
            if name and line.isdigit():
                places.append(Location(name, int(line)))
        return places


def _places(library: Path, addresses: Sequence[int]) -> list[list[str]]:
    """For each address the places it comes from, innermost first, as ``file:line``."""
    if not addresses:
        return []
    if shutil.which("addr2line"):
        return _addr2line(library, addresses)
    return dwarf.places(library, addresses) if dwarf.available() else []


def _addr2line(library: Path, addresses: Sequence[int]) -> list[list[str]]:
    command = ["addr2line", "-a", "-i", "-e", str(library)]
    lines = "".join(f"{address:#x}\n" for address in addresses)
    output = subprocess.run(command, input=lines, capture_output=True, text=True).stdout
    groups: list[list[str]] = []
    for line in output.splitlines():
        if line.startswith("0x"):
            groups.append([])
        else:
            groups[-1].append(line)
    return groups
