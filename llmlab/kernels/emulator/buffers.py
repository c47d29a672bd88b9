"""The memory that a kernel works on: guarded copies of the arrays, or the arrays themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arguments import ArrayArgument
from .native import Region

COPIED_BYTES = 16 << 20  # in fast mode, arrays up to this size in all are copied and guarded
FAST_GUARD = 4 << 10  # bytes on each side that must stay as they are
WATCHED_GUARD = (
    1 << 20
)  # bytes on each side that belong to nobody, so that a stray index meets no other array
ALIGNMENT = 256  # of what cudaMalloc and CuPy return


@dataclass
class Stretch:
    """Memory that one or more arguments share (a kernel may work in place, or on overlapping views)."""

    begin: int
    end: int
    arguments: list[ArrayArgument]
    address: int = 0  # where the kernel finds it
    copy: np.ndarray | None = None
    offset: int = 0  # of the stretch in the copy

    @property
    def bytes(self) -> int:
        return self.end - self.begin

    def argument_at(self, offset: int, written: bool) -> ArrayArgument:
        """The argument to name for an access there: for a write, one that the kernel may write."""
        address = self.begin + offset

        def fit(argument: ArrayArgument) -> tuple[bool, bool]:
            start = argument.array.ctypes.data
            inside = start <= address < start + argument.array.nbytes
            return inside, argument.parameter.is_constant != written

        return max(self.arguments, key=fit)


class Memory:
    """The arrays of a launch as the kernel sees them."""

    def __init__(self, arguments: list[ArrayArgument], watched: bool):
        self.watched = watched
        self.stretches = _stretches(arguments)
        guarded = watched or self.bytes <= COPIED_BYTES
        for stretch in self.stretches:
            if guarded:
                self._copy(stretch)
            else:
                stretch.address = stretch.begin
            self._poison_outputs(stretch)

    @property
    def bytes(self) -> int:
        return sum(stretch.bytes for stretch in self.stretches)

    def _copy(self, stretch: Stretch) -> None:
        guard = WATCHED_GUARD if self.watched else FAST_GUARD
        size = stretch.bytes + 2 * guard + ALIGNMENT
        stretch.copy = np.empty(size, np.uint8) if self.watched else np.full(size, 0xFF, np.uint8)
        start = stretch.copy.ctypes.data
        first = start + guard
        stretch.address = first + (_phase(stretch.arguments[0].array) - first) % ALIGNMENT
        stretch.offset = stretch.address - start
        content = stretch.copy[stretch.offset : stretch.offset + stretch.bytes]
        for argument in stretch.arguments:
            at = argument.array.ctypes.data - stretch.begin
            content[at : at + argument.array.nbytes] = _raw(argument.array)

    def _poison_outputs(self, stretch: Stretch) -> None:
        """Fill what the kernel must write with NaNs, unless another argument brings data there."""
        if not all(argument.is_output for argument in stretch.arguments):
            return
        if stretch.copy is not None:
            stretch.copy[stretch.offset : stretch.offset + stretch.bytes] = 0xFF
            return
        for argument in stretch.arguments:
            _raw(argument.array)[:] = 0xFF

    def address(self, argument: ArrayArgument) -> int:
        """The pointer that the kernel gets for an argument."""
        for stretch in self.stretches:
            if argument in stretch.arguments:
                return stretch.address + argument.array.ctypes.data - stretch.begin
        raise KeyError(argument)

    def regions(self) -> list[Region]:
        """What the checker has to know about the stretches."""
        return [
            Region(
                s.address,
                s.bytes,
                min(_granule(argument) for argument in s.arguments),
                any(argument.is_output for argument in s.arguments),
                all(argument.is_output for argument in s.arguments),
            )
            for s in self.stretches
        ]

    def write_back(self) -> None:
        """Bring what the kernel wrote into the arrays."""
        for stretch in self.stretches:
            if stretch.copy is None:
                continue
            content = stretch.copy[stretch.offset : stretch.offset + stretch.bytes]
            for argument in stretch.arguments:
                if not argument.parameter.is_constant:
                    at = argument.array.ctypes.data - stretch.begin
                    _raw(argument.array)[:] = content[at : at + argument.array.nbytes]

    def overwritten_guard(self) -> tuple[Stretch, int] | None:
        """A stretch whose guard a kernel changed, and the byte (from the start of the stretch) where."""
        for stretch in self.stretches:
            if stretch.copy is None or self.watched:
                continue
            after = stretch.copy[stretch.offset + stretch.bytes :]
            if (after != 0xFF).any():
                return stretch, stretch.bytes + int((after != 0xFF).argmax())
            before = stretch.copy[: stretch.offset]
            if (before != 0xFF).any():
                return stretch, -1 - int((before[::-1] != 0xFF).argmax())
        return None


def _stretches(arguments: list[ArrayArgument]) -> list[Stretch]:
    """Arguments that overlap in memory belong to one stretch."""
    stretches: list[Stretch] = []
    for argument in sorted(arguments, key=lambda a: a.array.ctypes.data):
        begin = argument.array.ctypes.data
        end = begin + argument.array.nbytes
        if stretches and begin < stretches[-1].end and end > begin:
            stretches[-1].end = max(stretches[-1].end, end)
            stretches[-1].arguments.append(argument)
        else:
            stretches.append(Stretch(begin, end, [argument]))
    return stretches


def _phase(array: np.ndarray) -> int:
    """Where the array would start on a GPU, modulo the alignment: who owns the memory starts at 0."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return (array.ctypes.data - owner.ctypes.data) % ALIGNMENT


def _granule(argument: ArrayArgument) -> int:
    """Bytes that the checker watches as one: an element, unless the kernel sees the array as bytes."""
    return min(argument.array.itemsize, argument.parameter.element_bytes)


def _raw(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
