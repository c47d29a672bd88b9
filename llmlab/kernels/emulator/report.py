"""From the engine's record of a fault to an exception that a reader can act on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .arguments import ArrayArgument, ParameterType, Value
from .buffers import Memory, Stretch
from .errors import (
    AssertionFault,
    DivergentBarrierError,
    DivisionByZeroError,
    EndlessLoopError,
    InactiveLaneError,
    KernelFault,
    LimitError,
    MemoryFaultError,
    MisalignedError,
    NeverWrittenError,
    OutOfBoundsError,
    ProfileLimitError,
    RaceError,
    UninitialisedError,
)
from .messages import quoted
from .native import Access, Fault, FaultKind, Place, Space
from .symbols import Location, Symbols
from .translate import Lines

_VERBS = {Access.READ: "read", Access.WRITE: "write", Access.ATOMIC: "atomic update"}
_CHECK_MODE = 'Run it with mode="check" to see the array, the index and the line.'


@dataclass
class Finding:
    """What one kind of fault comes to: the exception, the first sentence, the advice."""

    error: type[KernelFault]
    what: str
    hint: str
    array: str | None = None
    index: int | None = None
    details: Sequence[str] = ()


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
        finding = _FINDERS[kind](self, fault)
        block = tuple(fault.block)
        of_block = kind in (FaultKind.DIVERGENT_BARRIER, FaultKind.NEVER_WRITTEN)
        thread = None if of_block else tuple(fault.thread)
        chain = self._chain(fault.place)
        place = self.symbols.user_line(chain)
        who = f"by thread {thread} of block {block}" if thread else f"in block {block}"
        lines = [f"{self.kernel}: {finding.what}"]
        if kind is not FaultKind.NEVER_WRITTEN:
            lines.append(f"  {who}")
        lines += [f"  {detail}" for detail in self._at(place, chain)]
        lines += finding.details
        if finding.hint:
            lines.append(finding.hint)
        return finding.error(
            "\n".join(lines),
            kernel=self.kernel,
            array=finding.array,
            index=finding.index,
            block=None if kind is FaultKind.NEVER_WRITTEN else block,
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
        argument = self._named(stretch, offset, written=True)
        index = _index(argument, stretch, offset)
        name = argument.parameter.name
        raise OutOfBoundsError(
            f"{self.kernel}: {name}[{index}] was written, and {name} has {argument.array.size} elements.\n{_CHECK_MODE}",
            kernel=self.kernel,
            array=name,
            index=index,
            hint=_CHECK_MODE,
        )

    # -- places

    def _chain(self, place: Place) -> list[Location]:
        if self.mode != "fast":
            chain = self.symbols.chain(list(place.pcs[: place.depth]))
            if chain:
                return chain
        if place.file and place.line:
            return [Location(place.file.decode(), place.line)]
        return []

    def _at(self, place: Location | None, chain: Sequence[Location]) -> list[str]:
        """The line with its text, and the lines of the functions it was reached through."""
        if place is None:
            return []
        lines = [f"at {place}"]
        text = self.sources.get(place.file, {}).get(place.line)
        if text:
            lines.append(quoted(place.line, text))
        inner = [str(other) for other in chain[: chain.index(place)]]
        if inner:
            lines.append(f"inside {', called from '.join(inner)}")
        return lines

    # -- names

    def _array(self, fault: Fault) -> tuple[str, int, int, str]:
        """Name, index, number of elements of the array of a fault, and how a message writes the element."""
        if fault.space == Space.SHARED:
            name, element = fault.name.decode(), max(1, fault.element)
            index, size = fault.offset // element, fault.extent // element
            return name, index, size, f"shared {name}[{index}]"
        stretch = self.memory.stretches[fault.region]
        argument = self._named(stretch, fault.offset, fault.access != Access.READ)
        index = _index(argument, stretch, fault.offset)
        name, shape = argument.parameter.name, argument.array.shape
        written = f"{name}[{index}]"
        if len(shape) > 1 and 0 <= index < argument.array.size:
            axes = ", ".join(str(int(i)) for i in np.unravel_index(index, shape))
            written += f" (that is {name}[{axes}])"
        return name, index, argument.array.size, written

    def _element_bytes(self, fault: Fault) -> int:
        if fault.space == Space.SHARED:
            return fault.element
        stretch = self.memory.stretches[fault.region]
        return self._named(stretch, fault.offset, fault.access != Access.READ).array.itemsize

    def _named(self, stretch: Stretch, offset: int, written: bool) -> ArrayArgument:
        return stretch.argument_at(min(max(offset, 0), max(0, stretch.bytes - 1)), written)

    # -- kinds

    def _out_of_bounds(self, fault: Fault) -> Finding:
        name, index, size, element = self._array(fault)
        verb = _VERBS[Access(fault.access)]
        what = f"out-of-bounds {verb} of {element}: {name} has {size} elements"
        if fault.bytes > self._element_bytes(fault):
            what += f", and the access takes {fault.bytes} bytes"
        if fault.space == Space.SHARED and size == 0:
            hint = f"Give the launch shared_mem=: the kernel declares {name} as extern __shared__."
        elif fault.space == Space.SHARED:
            hint = "Make the array larger, or stop the index at its end."
        elif index < 0:
            hint = "The index is negative: guard the first elements as well as the last."
        else:
            hint = "Guard the access with the array's length, as in `if (i < n)`; the last block usually reaches past the end."
        return Finding(OutOfBoundsError, what, hint, name, index)

    def _misaligned(self, fault: Fault) -> Finding:
        name, index, _, element = self._array(fault)
        what = f"misaligned {_VERBS[Access(fault.access)]} of {fault.bytes} bytes at {element}: its address is no multiple of {fault.bytes}"
        hint = "Use vector accesses only where both the array's start and the index are aligned, and scalar ones for the rest."
        return Finding(MisalignedError, what, hint, name, index)

    def _null_pointer(self, fault: Fault) -> Finding:
        nulls = [p.name for p, v in zip(self.parameters, self.values, strict=True) if v is None]
        name = nulls[0] if len(nulls) == 1 else None
        given = f": {' and '.join(nulls)} {'was' if len(nulls) == 1 else 'were'} given as None" if nulls else ""
        return Finding(OutOfBoundsError, f"{_VERBS[Access(fault.access)]} through a null pointer{given}", "Test the pointer before using it.", name)

    def _foreign_local(self, fault: Fault) -> Finding:
        what = f"{_VERBS[Access(fault.access)]} of another thread's local variable"
        return Finding(OutOfBoundsError, what, "Local variables belong to one thread: exchange values by shared memory or a shuffle.")

    def _array_bounds(self, fault: Fault) -> Finding:
        name = self._subscripted(fault)
        what = f"index {fault.offset} is outside {name or 'a local array'}, whose dimension there has {fault.extent} elements"
        return Finding(OutOfBoundsError, what, "Make the array larger, or stop the index at its end.", name, fault.offset)

    def _subscripted(self, fault: Fault) -> str | None:
        """The name of the array whose subscript ends at the column that the compiler gave."""
        file = fault.place.file.decode() if fault.place.file else ""
        line = self.translated.get(file, {}).get(fault.place.line, "")[: fault.place.column]
        while line.endswith("]"):
            depth, start = 1, len(line) - 1
            while depth and start:
                start -= 1
                depth += {"]": 1, "[": -1}.get(line[start], 0)
            line = line[:start].rstrip()
        name = re.search(r"\w+$", line)
        return name[0] if name else None

    def _race(self, fault: Fault) -> Finding:
        name, index, _, element = self._array(fault)
        verb, other_verb = _VERBS[Access(fault.access)], _VERBS[Access(fault.other_access)]
        here, there = tuple(fault.block), tuple(fault.other_block)
        other = tuple(fault.other_thread)
        chain = self._chain(fault.other_place)
        place = self.symbols.user_line(chain)
        if here != there:
            what = f"race between blocks: {verb} of {element}, after a {other_verb} by thread {other} of block {there}"
            hint = "Blocks run in any order: use an atomic, or let each block write elements of its own."
        elif self._warp(other) == self._warp(tuple(fault.thread)) and fault.count < 2:
            what = f"race within a warp: {verb} of {element}, after a {other_verb} by thread {other}, with no __syncwarp() between"
            hint = "Put a __syncwarp() between the two accesses."
        else:
            what = f"race within a block: {verb} of {element}, after a {other_verb} by thread {other}, with no __syncthreads() between"
            hint = "Put a __syncthreads() between the two accesses, where all threads of the block reach it."
        if place and self._changes_in_place(place) and place == self.symbols.user_line(self._chain(fault.place)):
            hint = "Several threads change one element here, and changes get lost: use an atomic such as atomicAdd, or give each thread its own."
        details = [f"  the {other_verb}: {line}" if i == 0 else f"  {line}" for i, line in enumerate(self._at(place, chain))]
        return Finding(RaceError, what, hint, name, index, details)

    def _changes_in_place(self, place: Location) -> bool:
        """Whether the line reads and writes one element, as in ``counts[i] += 1``."""
        return bool(re.search(r"\][^;=]*([-+*/|&^]=|\+\+|--)", self.sources.get(place.file, {}).get(place.line, "")))

    def _warp(self, thread: tuple[int, ...]) -> int:
        x, y, _ = self.block
        return (thread[0] + x * (thread[1] + y * thread[2])) // 32

    def _uninitialised(self, fault: Fault) -> Finding:
        name, index, _, element = self._array(fault)
        what = f"read of {element}, which nothing has written yet"
        if fault.space == Space.SHARED:
            hint = "Write every element before it is read, and put a barrier (after cp.async: a wait) between."
        else:
            hint = f"{name} is an output: if the kernel is to add to what is there, pass it as a plain array."
        return Finding(UninitialisedError, what, hint, name, index)

    def _never_written(self, fault: Fault) -> Finding:
        name, index, size, element = self._array(fault)
        what = f"{fault.count} of {size} elements of the output {name} were never written; the first is {element}"
        return Finding(NeverWrittenError, what, "Check the grid's size and the guard: every element needs a thread that writes it.", name, index)

    def _divergent_barrier(self, fault: Fault) -> Finding:
        barrier = fault.name.decode()
        groups = [self._group(line) for line in fault.detail.decode().splitlines()]
        what = f"{barrier} is not reached by all the threads that it waits for"
        hint = "Move the barrier to where all threads come, and guard the work instead: no return, and no branch on threadIdx, before it."
        if barrier not in ("__syncthreads", "__syncthreads_count", "__syncthreads_or", "__syncthreads_and"):
            hint = "Call it where all lanes of its mask come, or name in the mask only the lanes that do."
        return Finding(DivergentBarrierError, what, hint, None, None, groups)

    def _group(self, line: str) -> str:
        first, last, name, file, number, mask = line.split("\t")
        who = f"thread {self._thread(int(first))}" if first == last else f"threads {self._thread(int(first))} to {self._thread(int(last))}"
        if not name:
            return f"  {who}: returned from the kernel" if first != last else f"  {who}: has returned from the kernel"
        wait = "waits" if first == last else "wait"
        with_mask = f", mask 0x{int(mask):08x}" if int(mask) else ""
        return f"  {who}: {wait} at {name} ({file}:{number}{with_mask})"

    def _thread(self, linear: int) -> tuple[int, int, int]:
        x, y, _ = self.block
        return linear % x, linear // x % y, linear // (x * y)

    def _inactive_lane(self, fault: Fault) -> Finding:
        name, lane, mask = fault.name.decode(), fault.count, f"0x{fault.extent:08x}"
        reason = fault.detail.decode()
        if reason == "source":
            what = f"{name}: lane {lane}, from which this lane reads, does not take part (the lanes that do: {mask})"
            hint = "Name in the mask the lanes that are read, and let all of them make the call."
        elif reason == "caller":
            what = f"{name}: the calling lane {lane} is not in its own mask {mask}"
            hint = "A lane may only name a mask that it belongs to."
        else:
            what = f"{name}: mask {mask} names lane {lane}, which has returned or gone another way"
            hint = "Let all lanes of the mask make the call: guard the values, not the call."
        return Finding(InactiveLaneError, what, hint)

    def _shared_limit(self, fault: Fault) -> Finding:
        what = f"{fault.bytes} bytes of declared and {fault.extent} bytes of dynamic shared memory; a block has at most 232448 (227 KiB)"
        return Finding(LimitError, what, "Work on a smaller tile at a time.", fault.name.decode())

    def _static_shared_limit(self, fault: Fault) -> Finding:
        what = f"{fault.bytes} bytes of declared shared memory; nvcc accepts at most 49152 (48 KiB)"
        return Finding(LimitError, what, "Declare it as extern __shared__ and give the launch shared_mem=.", fault.name.decode())

    def _division_by_zero(self, fault: Fault) -> Finding:
        hint = "A GPU gives a wrong number without a word: test the divisor."
        return Finding(DivisionByZeroError, "integer division by zero", hint if self.mode != "fast" else f"{hint} {_CHECK_MODE}")

    def _endless_loop(self, fault: Fault) -> Finding:
        what = "a thread did not come to an end within the time limit: an endless loop"
        hint = "Check that the loop's condition changes. A thread that waits for another block waits for ever here, where blocks run one after another."
        return Finding(EndlessLoopError, what, hint)

    def _memory_fault(self, fault: Fault) -> Finding:
        what = "an access to memory that is not there: a wild pointer, a misaligned vector, or local arrays too large for the stack"
        return Finding(MemoryFaultError, what, _CHECK_MODE if self.mode == "fast" else "")

    def _stopped(self, fault: Fault) -> Finding:
        return Finding(AssertionFault, f"{fault.detail.decode()} stopped the kernel", "")

    def _too_many_accesses(self, fault: Fault) -> Finding:
        what = "more memory accesses of one warp between two barriers than a profile holds"
        return Finding(ProfileLimitError, what, "Profile a smaller problem: counts grow in proportion.")


_FINDERS = {
    FaultKind.OUT_OF_BOUNDS: Report._out_of_bounds,
    FaultKind.MISALIGNED: Report._misaligned,
    FaultKind.NULL_POINTER: Report._null_pointer,
    FaultKind.FOREIGN_LOCAL: Report._foreign_local,
    FaultKind.ARRAY_BOUNDS: Report._array_bounds,
    FaultKind.RACE: Report._race,
    FaultKind.UNINITIALISED: Report._uninitialised,
    FaultKind.NEVER_WRITTEN: Report._never_written,
    FaultKind.DIVERGENT_BARRIER: Report._divergent_barrier,
    FaultKind.INACTIVE_LANE: Report._inactive_lane,
    FaultKind.SHARED_LIMIT: Report._shared_limit,
    FaultKind.STATIC_SHARED_LIMIT: Report._static_shared_limit,
    FaultKind.DIVISION_BY_ZERO: Report._division_by_zero,
    FaultKind.ENDLESS_LOOP: Report._endless_loop,
    FaultKind.MEMORY_FAULT: Report._memory_fault,
    FaultKind.STOPPED: Report._stopped,
    FaultKind.TOO_MANY_ACCESSES: Report._too_many_accesses,
}


def _index(argument: ArrayArgument, stretch: Stretch, offset: int) -> int:
    """The element of the argument's array at a byte of its stretch."""
    return (stretch.begin + offset - argument.array.ctypes.data) // argument.array.itemsize
