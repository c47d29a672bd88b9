"""From the address of an instruction to the lines of the kernel's text that it comes from."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


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
        self._lines = functools.cache(self._look_up)
        library.emulated_image_base.restype = ctypes.c_void_p
        self._base = library.emulated_image_base()

    def chain(self, pcs: Sequence[int]) -> list[Location]:
        """The places from the innermost call outwards, inlined calls included, within the kernel's text."""
        addresses = tuple(pc - self._base for pc in pcs if pc)
        chain: list[Location] = []
        for location in [place for address in addresses for place in self._lines(address)]:
            if not chain or chain[-1] != location:
                chain.append(location)
        return chain

    def user_line(self, chain: Sequence[Location]) -> Location | None:
        """Of a chain, the innermost place in the main text; failing that, the innermost of all."""
        return next((place for place in chain if place.file == self.main_file), chain[0] if chain else None)

    def _look_up(self, address: int) -> list[Location]:
        # What was recorded is where the call returns to: one byte before lies the instruction itself.
        return self._own(self._addr2line(address - 1))

    def _own(self, answers: list[str]) -> list[Location]:
        places = []
        for answer in answers:
            file, _, line = answer.partition(" (")[0].rpartition(":")
            name = self._files.get(Path(file).name)
            if name and line.isdigit():
                places.append(Location(name, int(line)))
        return places

    def _addr2line(self, address: int) -> list[str]:
        if address < 0 or shutil.which("addr2line") is None:
            return []
        command = ["addr2line", "-i", "-e", str(self._path), hex(address)]
        return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
