"""From the engine's record of a fault to an exception that a reader can act on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .arguments import ArrayArgument, ParameterType, Value
from .buffers import Memory, Stretch
from .errors import OutOfBoundsError
from .findings import CHECK_MODE, FINDERS, Element
from .messages import quoted
from .native import Access, Fault, FaultKind, Place, Space
from .symbols import Location, Symbols
from .translate import Lines


@dataclass
class Report:
    """Everything about a launch that a message may need."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    mode: str
    parameters: list[ParameterType]
    values: list[Value]
    memory: Memory
    symbols: Symbols
    sources: Lines
    translated: Lines

    def exception(self, fault: Fault) -> BaseException:
        """The exception for a fault; KeyboardInterrupt where the reader asked for it."""
        kind = FaultKind(fault.kind)
        if kind is FaultKind.INTERRUPTED:
            return KeyboardInterrupt()
        finding = FINDERS[kind](self, fault)
        of_launch = kind is FaultKind.NEVER_WRITTEN
        block = None if of_launch else tuple(fault.block)
        thread = None if of_launch or kind is FaultKind.DIVERGENT_BARRIER else tuple(fault.thread)
        chain = self.chain(fault.place)
        place = self.symbols.user_line(chain)
        lines = [f"{self.kernel}: {finding.what}"]
        if block:
            lines.append(f"  by thread {thread} of block {block}" if thread else f"  in block {block}")
        lines += [f"  {line}" for line in self.at(place, chain)]
        lines += finding.details
        if finding.hint:
            lines.append(finding.hint)
        return finding.error(
            "\n".join(lines),
            kernel=self.kernel,
            array=finding.array,
            index=finding.index,
            block=block,
            thread=thread,
            file=place.file if place else None,
            line=place.line if place else None,
            hint=finding.hint,
        )

    def check_guards(self) -> None:
        """Raise if a kernel in fast mode wrote just outside an array.

        Raises:
            OutOfBoundsError: naming the array and the index.
        """
        found = self.memory.overwritten_guard()
        if found is None:
            return
        stretch, offset = found
        argument = self._argument(stretch, offset, written=True)
        index = _index(argument, stretch, offset)
        name, size = argument.parameter.name, argument.array.size
        raise OutOfBoundsError(
            f"{self.kernel}: {name}[{index}] was written, and {name} has {size} elements.\n{CHECK_MODE}",
            kernel=self.kernel,
            array=name,
            index=index,
            hint=CHECK_MODE,
        )

    # -- places

    def chain(self, place: Place) -> list[Location]:
        """The lines from the innermost call outwards."""
        if self.mode != "fast":
            chain = self.symbols.chain(list(place.pcs[: place.depth]))
            if chain:
                return chain
        if place.file and place.line:
            return [Location(place.file.decode(), place.line)]
        return []

    def at(self, place: Location | None, chain: Sequence[Location]) -> list[str]:
        """The line with its text, and the lines of the functions through which it was reached."""
        if place is None:
            return []
        lines = [f"at {place}"]
        text = self.text(place)
        if text:
            lines.append(quoted(place.line, text))
        inner = [str(other) for other in chain[: chain.index(place)]]
        if inner:
            lines.append(f"inside {', called from '.join(inner)}")
        return lines

    def text(self, place: Location) -> str:
        """The line itself."""
        return self.sources.get(place.file, {}).get(place.line, "")

    # -- arrays and threads

    def element(self, fault: Fault) -> Element:
        """The element of an array that a fault is about."""
        if fault.space == Space.SHARED:
            name, bytes_ = fault.name.decode(), max(1, fault.element)
            index = fault.offset // bytes_
            return Element(name, index, fault.extent // bytes_, bytes_, f"shared {name}[{index}]")
        stretch = self.memory.stretches[fault.region]
        argument = self._argument(stretch, fault.offset, fault.access != Access.READ)
        index = _index(argument, stretch, fault.offset)
        name, array = argument.parameter.name, argument.array
        written = f"{name}[{index}]"
        if array.ndim > 1 and 0 <= index < array.size:
            axes = ", ".join(str(int(i)) for i in np.unravel_index(index, array.shape))
            written += f" (that is {name}[{axes}])"
        return Element(name, index, array.size, array.itemsize, written)

    def nulls(self) -> list[str]:
        """The pointers that were given as None."""
        return [p.name for p, v in zip(self.parameters, self.values, strict=True) if v is None]

    def thread(self, linear: int) -> tuple[int, int, int]:
        """``threadIdx`` of a thread by its number in the block."""
        x, y, _ = self.block
        return linear % x, linear // x % y, linear // (x * y)

    def warp(self, thread: Sequence[int]) -> int:
        """The warp in which a thread is."""
        x, y, _ = self.block
        return (thread[0] + x * (thread[1] + y * thread[2])) // 32

    @staticmethod
    def _argument(stretch: Stretch, offset: int, written: bool) -> ArrayArgument:
        return stretch.argument_at(min(max(offset, 0), max(0, stretch.bytes - 1)), written)


def _index(argument: ArrayArgument, stretch: Stretch, offset: int) -> int:
    """The element of the argument's array at a byte of its stretch."""
    return (stretch.begin + offset - argument.array.ctypes.data) // argument.array.itemsize
