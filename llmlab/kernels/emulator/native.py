"""The C structures of the engine as ctypes sees them, and a loaded library."""

from __future__ import annotations

import ctypes
import threading
from enum import IntEnum
from pathlib import Path

MAX_CALLS = 32

launch_lock = threading.Lock()  # the engine runs one launch at a time
_stacks: int | None = None


class Kind(IntEnum):
    """What a parameter holds (``Kind`` in entry.h)."""

    INTEGER, NATURAL, FLOATING, HALF, BFLOAT16, BOOLEAN, BYTES, OTHER = range(8)


class FaultKind(IntEnum):
    """What went wrong (``FaultKind`` in fault.h)."""

    (
        NONE, OUT_OF_BOUNDS, MISALIGNED, NULL_POINTER, FOREIGN_LOCAL, ARRAY_BOUNDS, RACE, UNINITIALISED,
        NEVER_WRITTEN,
        DIVERGENT_BARRIER, INACTIVE_LANE, SHARED_LIMIT, STATIC_SHARED_LIMIT, DIVISION_BY_ZERO, ENDLESS_LOOP,
        MEMORY_FAULT, STOPPED, INTERRUPTED, TOO_MANY_ACCESSES,
    ) = range(19)  # fmt: skip


class Space(IntEnum):
    NONE, GLOBAL, SHARED, LOCAL = range(4)


class Access(IntEnum):
    READ, WRITE, ATOMIC = range(3)


class Parameter(ctypes.Structure):
    """What the compiler says of one parameter (``Parameter`` in entry.h)."""

    _fields_ = [
        ("pointer", ctypes.c_int), ("constant", ctypes.c_int), ("kind", ctypes.c_int),
        ("lanes", ctypes.c_int), ("bytes", ctypes.c_int),
    ]  # fmt: skip


class Region(ctypes.Structure):
    _fields_ = [
        ("begin", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("granule", ctypes.c_uint64),
        ("must_be_written", ctypes.c_int), ("uninitialised", ctypes.c_int),
    ]  # fmt: skip


class Launch(ctypes.Structure):
    _fields_ = [
        ("run", ctypes.c_void_p), ("values", ctypes.POINTER(ctypes.c_void_p)),
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint64),
        ("regions", ctypes.POINTER(Region)), ("region_count", ctypes.c_int),
        ("time_limit", ctypes.c_double), ("stacks", ctypes.c_void_p),
    ]  # fmt: skip


class Place(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p), ("line", ctypes.c_int), ("column", ctypes.c_int), ("depth", ctypes.c_int),
        ("pcs", ctypes.c_void_p * (MAX_CALLS + 2)),
    ]  # fmt: skip


class Fault(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int), ("space", ctypes.c_int), ("access", ctypes.c_int), ("region", ctypes.c_int),
        ("offset", ctypes.c_int64), ("count", ctypes.c_int64),
        ("bytes", ctypes.c_uint64), ("extent", ctypes.c_uint64), ("element", ctypes.c_uint64),
        ("block", ctypes.c_uint * 3), ("thread", ctypes.c_uint * 3), ("place", Place),
        ("other_access", ctypes.c_int), ("other_block", ctypes.c_uint * 3),
        ("other_thread", ctypes.c_uint * 3),
        ("other_place", Place), ("name", ctypes.c_char * 64), ("detail", ctypes.c_char * 4096),
    ]  # fmt: skip


def load(path: Path) -> ctypes.CDLL:
    """Load a compiled module and give it the stacks that all modules of the process share.

    Raises:
        MemoryError: if the system does not give 256 MiB of address space for the threads' stacks.
    """
    global _stacks
    library = ctypes.CDLL(str(path))
    library.emulated_launch.argtypes = [ctypes.POINTER(Launch), ctypes.POINTER(Fault)]
    library.emulated_launch.restype = ctypes.c_int
    if _stacks is None:
        library.emulated_reserve_stacks.restype = ctypes.c_void_p
        _stacks = library.emulated_reserve_stacks()
    if _stacks is None:
        raise MemoryError("the emulator needs 256 MiB of address space for the stacks of a block's threads")
    return library


def stacks() -> int | None:
    """The stacks on which the threads of a block run."""
    return _stacks


class Request(ctypes.Structure):
    _fields_ = [
        ("block", ctypes.c_uint * 3), ("warp", ctypes.c_uint), ("lanes", ctypes.c_uint),
        ("offsets", ctypes.c_int64 * 32), ("sectors", ctypes.c_uint32), ("wavefronts", ctypes.c_uint32),
    ]  # fmt: skip


class Instruction(ctypes.Structure):
    _fields_ = [
        ("place", Place), ("space", ctypes.c_int), ("access", ctypes.c_int), ("region", ctypes.c_int),
        ("bytes", ctypes.c_uint32), ("name", ctypes.c_char * 64),
        ("requests", ctypes.c_uint64), ("lanes", ctypes.c_uint64), ("distinct_bytes", ctypes.c_uint64),
        ("sectors", ctypes.c_uint64), ("ideal_sectors", ctypes.c_uint64),
        ("wavefronts", ctypes.c_uint64), ("ideal_wavefronts", ctypes.c_uint64),
        ("first", Request), ("worst", Request),
    ]  # fmt: skip


class RegionTraffic(ctypes.Structure):
    _fields_ = [("bytes_read", ctypes.c_uint64), ("bytes_written", ctypes.c_uint64)]


class Counts(ctypes.Structure):
    """What a launch in mode ``"profile"`` counted (``EmulatedProfile`` in traffic.h)."""

    _fields_ = [
        ("instructions", ctypes.POINTER(Instruction)), ("regions", ctypes.POINTER(RegionTraffic)),
        ("instruction_count", ctypes.c_uint64), ("region_count", ctypes.c_uint64),
        ("barriers", ctypes.c_uint64), ("meetings", ctypes.c_uint64),
    ]  # fmt: skip
