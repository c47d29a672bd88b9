"""What each kind of fault is called, and what usually mends it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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
from .native import Access, Fault, FaultKind, Space
from .symbols import Location

if TYPE_CHECKING:
    from .report import Report

CHECK_MODE = 'Run it with mode="check" to see the array, the index and the line.'
_VERBS = {Access.READ: "read", Access.WRITE: "write", Access.ATOMIC: "atomic update"}


class Element(NamedTuple):
    """An element of an array, as messages name it."""

    array: str
    index: int
    size: int  # of the array, in elements
    bytes: int  # of an element
    text: str


@dataclass
class Finding:
    """What a fault comes to: the exception, the first sentence, the advice."""

    error: type[KernelFault]
    what: str
    hint: str
    array: str | None = None
    index: int | None = None
    details: Sequence[str] = ()


def _verb(fault: Fault) -> str:
    return _VERBS[Access(fault.access)]


# ---- accesses


def out_of_bounds(report: Report, fault: Fault) -> Finding:
    element = report.element(fault)
    what = f"out-of-bounds {_verb(fault)} of {element.text}: {element.array} has {element.size} elements"
    if fault.bytes > element.bytes:
        what += f", and the access takes {fault.bytes} bytes"
    if fault.space == Space.SHARED and element.size == 0:
        hint = f"Give the launch shared_mem=: the kernel declares {element.array} as extern __shared__."
    elif fault.space == Space.SHARED:
        hint = "Make the array larger, or stop the index at its end."
    elif element.index < 0:
        hint = "The index is negative: guard the first elements as well as the last."
    else:
        hint = (
            "Guard the access with the array's length, as in `if (i < n)`; "
            "the last block usually reaches past the end."
        )
    return Finding(OutOfBoundsError, what, hint, element.array, element.index)


def misaligned(report: Report, fault: Fault) -> Finding:
    element = report.element(fault)
    what = (
        f"misaligned {_verb(fault)} of {fault.bytes} bytes at {element.text}: "
        f"its address is no multiple of {fault.bytes}"
    )
    hint = (
        "Use vector accesses only where both the array's start and the index are aligned, "
        "and scalar ones for the rest."
    )
    return Finding(MisalignedError, what, hint, element.array, element.index)


def null_pointer(report: Report, fault: Fault) -> Finding:
    nulls = report.nulls()
    what = f"{_verb(fault)} through a null pointer"
    if nulls:
        what += f": {' and '.join(nulls)} {'was' if len(nulls) == 1 else 'were'} given as None"
    array = nulls[0] if len(nulls) == 1 else None
    return Finding(OutOfBoundsError, what, "Test the pointer before using it.", array)


def foreign_local(report: Report, fault: Fault) -> Finding:
    what = f"{_verb(fault)} of another thread's local variable"
    hint = "Local variables belong to one thread: exchange values by shared memory or a shuffle."
    return Finding(OutOfBoundsError, what, hint)


def array_bounds(report: Report, fault: Fault) -> Finding:
    name = _subscripted(report, fault)
    what = (
        f"index {fault.offset} is outside {name or 'a local array'}, "
        f"whose dimension there has {fault.extent} elements"
    )
    hint = "Make the array larger, or stop the index at its end."
    return Finding(OutOfBoundsError, what, hint, name, fault.offset)


def _subscripted(report: Report, fault: Fault) -> str | None:
    """The array at the column that the compiler gave: its first letter (clang) or its bracket (g++)."""
    file = fault.place.file.decode() if fault.place.file else ""
    line, column = report.translated.get(file, {}).get(fault.place.line, ""), fault.place.column
    word = re.match(r"\w+", line[column - 1 :])
    if word:
        return word[0]
    line = line[:column]
    while line.endswith("]"):
        depth, start = 1, len(line) - 1
        while depth and start:
            start -= 1
            depth += {"]": 1, "[": -1}.get(line[start], 0)
        line = line[:start].rstrip()
    name = re.search(r"\w+$", line)
    return name[0] if name else None


# ---- order


def race(report: Report, fault: Fault) -> Finding:
    element = report.element(fault)
    other_verb = _VERBS[Access(fault.other_access)]
    thread, other = tuple(fault.thread), tuple(fault.other_thread)
    block, other_block = tuple(fault.block), tuple(fault.other_block)
    chain = report.chain(fault.other_place)
    place = report.symbols.user_line(chain)
    after = f"{_verb(fault)} of {element.text}, after a {other_verb} by thread {other}"
    if block != other_block:
        what = f"race between blocks: {after} of block {other_block}"
        hint = "Blocks run in any order: use an atomic, or let each block write elements of its own."
    elif report.warp(other) == report.warp(thread) and fault.count < 2:
        what = f"race within a warp: {after}, with no __syncwarp() between"
        hint = "Put a __syncwarp() between the two accesses."
    else:
        what = f"race within a block: {after}, with no __syncthreads() between"
        hint = "Put a __syncthreads() between the two accesses, where all threads of the block reach it."
    if (
        place
        and _changes_in_place(report, place)
        and place == report.symbols.user_line(report.chain(fault.place))
    ):
        hint = (
            "Several threads change one element here, and changes get lost: "
            "use an atomic such as atomicAdd, or give each thread its own."
        )
    shown = report.at(place, chain)
    details = [f"  the {other_verb}: {shown[0]}", *(f"  {line}" for line in shown[1:])] if shown else []
    return Finding(RaceError, what, hint, element.array, element.index, details)


def _changes_in_place(report: Report, place: Location) -> bool:
    """Whether the line reads and writes one element, as in ``counts[i] += 1``."""
    return bool(re.search(r"\][^;=]*([-+*/|&^]=|\+\+|--)", report.text(place)))


def uninitialised(report: Report, fault: Fault) -> Finding:
    element = report.element(fault)
    if fault.space == Space.SHARED:
        hint = "Write every element before it is read, and put a barrier (after cp.async: a wait) between."
    else:
        hint = (
            f"{element.array} is an output: if the kernel is to add to what is there, "
            "pass it as a plain array."
        )
    what = f"read of {element.text}, which nothing has written yet"
    return Finding(UninitialisedError, what, hint, element.array, element.index)


def never_written(report: Report, fault: Fault) -> Finding:
    element = report.element(fault)
    what = (
        f"{fault.count} of {element.size} elements of the output {element.array} were never written; "
        f"the first is {element.text}"
    )
    hint = "Check the grid's size and the guard: every element needs a thread that writes it."
    return Finding(NeverWrittenError, what, hint, element.array, element.index)


# ---- threads that wait for each other


def divergent_barrier(report: Report, fault: Fault) -> Finding:
    barrier = fault.name.decode()
    groups = [_group(report, line) for line in fault.detail.decode().splitlines()]
    what = f"{barrier} is not reached by all the threads that it waits for"
    if barrier.startswith("__syncthreads"):
        hint = (
            "Move the barrier to where all threads come, and guard the work instead: "
            "no return, and no branch on threadIdx, before it."
        )
    else:
        hint = "Call it where all lanes of its mask come, or name in the mask only the lanes that do."
    return Finding(DivergentBarrierError, what, hint, details=groups)


def _group(report: Report, line: str) -> str:
    """Threads that wait at one place, or have returned, in a line of the engine's list."""
    first, last, name, file, number, mask = line.split("\t")
    one = first == last
    who = f"thread {report.thread(int(first))}"
    if not one:
        who = f"threads {report.thread(int(first))} to {report.thread(int(last))}"
    if not name:
        return f"  {who}: returned from the kernel"
    with_mask = f", mask 0x{int(mask):08x}" if int(mask) else ""
    return f"  {who}: {'waits' if one else 'wait'} at {name} ({file}:{number}{with_mask})"


def inactive_lane(report: Report, fault: Fault) -> Finding:
    name, lane, mask = fault.name.decode(), fault.count, f"0x{fault.extent:08x}"
    reason = fault.detail.decode()
    if reason == "source":
        what = f"{name}: lane {lane}, from which this lane reads, does not take part (those that do: {mask})"
        hint = "Name in the mask the lanes that are read, and let all of them make the call."
    elif reason == "caller":
        what = f"{name}: the calling lane {lane} is not in its own mask {mask}"
        hint = "A lane may only name a mask that it belongs to."
    else:
        what = f"{name}: mask {mask} names lane {lane}, which has returned or gone another way"
        hint = "Let all lanes of the mask make the call: guard the values, not the call."
    return Finding(InactiveLaneError, what, hint)


# ---- limits, and the rest


def shared_limit(report: Report, fault: Fault) -> Finding:
    what = (
        f"{fault.bytes} bytes of declared and {fault.extent} bytes of dynamic shared memory; "
        "a block has at most 232448 (227 KiB)"
    )
    return Finding(LimitError, what, "Work on a smaller tile at a time.", fault.name.decode())


def static_shared_limit(report: Report, fault: Fault) -> Finding:
    what = f"{fault.bytes} bytes of declared shared memory; nvcc accepts at most 49152 (48 KiB)"
    hint = "Declare it as extern __shared__ and give the launch shared_mem=."
    return Finding(LimitError, what, hint, fault.name.decode())


def division_by_zero(report: Report, fault: Fault) -> Finding:
    hint = "A GPU gives a wrong number without a word: test the divisor."
    if report.mode == "fast":
        hint += f" {CHECK_MODE}"
    return Finding(DivisionByZeroError, "integer division by zero", hint)


def endless_loop(report: Report, fault: Fault) -> Finding:
    what = "a thread did not come to an end within the time limit: an endless loop"
    hint = (
        "Check that the loop's condition changes. A thread that waits for another block waits for ever here, "
        "where blocks run one after another."
    )
    return Finding(EndlessLoopError, what, hint)


def memory_fault(report: Report, fault: Fault) -> Finding:
    what = (
        "an access to memory that is not there: a wild pointer, a misaligned vector, "
        "or local arrays too large for the stack"
    )
    return Finding(MemoryFaultError, what, CHECK_MODE if report.mode == "fast" else "")


def stopped(report: Report, fault: Fault) -> Finding:
    return Finding(AssertionFault, f"{fault.detail.decode()} stopped the kernel", "")


def too_many_accesses(report: Report, fault: Fault) -> Finding:
    what = "more memory accesses of one thread between two barriers than a profile holds"
    return Finding(ProfileLimitError, what, "Profile a smaller problem: counts grow in proportion.")


FINDERS: dict[FaultKind, Callable[[Report, Fault], Finding]] = {
    FaultKind.OUT_OF_BOUNDS: out_of_bounds,
    FaultKind.MISALIGNED: misaligned,
    FaultKind.NULL_POINTER: null_pointer,
    FaultKind.FOREIGN_LOCAL: foreign_local,
    FaultKind.ARRAY_BOUNDS: array_bounds,
    FaultKind.RACE: race,
    FaultKind.UNINITIALISED: uninitialised,
    FaultKind.NEVER_WRITTEN: never_written,
    FaultKind.DIVERGENT_BARRIER: divergent_barrier,
    FaultKind.INACTIVE_LANE: inactive_lane,
    FaultKind.SHARED_LIMIT: shared_limit,
    FaultKind.STATIC_SHARED_LIMIT: static_shared_limit,
    FaultKind.DIVISION_BY_ZERO: division_by_zero,
    FaultKind.ENDLESS_LOOP: endless_loop,
    FaultKind.MEMORY_FAULT: memory_fault,
    FaultKind.STOPPED: stopped,
    FaultKind.TOO_MANY_ACCESSES: too_many_accesses,
}
