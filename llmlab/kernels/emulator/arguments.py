"""The arguments of a launch against the kernel's parameters: what fits is converted, the rest refused."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .native import Kind, Parameter


class Out:
    """An array that the kernel must fill: what it holds before is gone, and every element must be written.

    In ``mode="check"`` a read before a write, and an element never written, are reported.
    """

    def __init__(self, array: np.ndarray):
        self.array = array

    def __repr__(self) -> str:
        return f"Out({self.array!r})"


@dataclass(frozen=True)
class ParameterType:
    """Name and type of a kernel's parameter."""

    name: str
    is_pointer: bool
    is_constant: bool
    kind: Kind
    lanes: int  # 4 for float4
    bytes: int

    @classmethod
    def of(cls, name: str, native: Parameter) -> ParameterType:
        kind = Kind(native.kind)
        return cls(name, bool(native.pointer), bool(native.constant), kind, native.lanes, native.bytes)

    @property
    def element_bytes(self) -> int:
        return self.bytes // self.lanes

    @property
    def text(self) -> str:
        """The type in CUDA's words, such as ``const float*``."""
        scalar = _TYPE_NAMES.get((self.kind, self.element_bytes), f"{self.bytes}-byte type")
        if self.kind is Kind.BYTES:
            scalar = "char"
        scalar += str(self.lanes) if self.lanes > 1 else ""
        if not self.is_pointer:
            return scalar
        return f"{'const ' if self.is_constant else ''}{scalar}*"

    @property
    def dtype(self) -> str | None:
        """The name of the NumPy dtype of the same bits, or None if there is no single one."""
        return _DTYPE_NAMES.get((self.kind, self.element_bytes))


_TYPE_NAMES = {
    (Kind.INTEGER, 1): "signed char", (Kind.INTEGER, 2): "short", (Kind.INTEGER, 4): "int",
    (Kind.INTEGER, 8): "long long", (Kind.NATURAL, 1): "unsigned char", (Kind.NATURAL, 2): "unsigned short",
    (Kind.NATURAL, 4): "unsigned int", (Kind.NATURAL, 8): "unsigned long long", (Kind.FLOATING, 4): "float",
    (Kind.FLOATING, 8): "double", (Kind.HALF, 2): "__half", (Kind.BFLOAT16, 2): "__nv_bfloat16",
    (Kind.BOOLEAN, 1): "bool",
}  # fmt: skip
_DTYPE_NAMES = {
    (Kind.INTEGER, 1): "int8", (Kind.INTEGER, 2): "int16", (Kind.INTEGER, 4): "int32",
    (Kind.INTEGER, 8): "int64",
    (Kind.NATURAL, 1): "uint8", (Kind.NATURAL, 2): "uint16", (Kind.NATURAL, 4): "uint32",
    (Kind.NATURAL, 8): "uint64",
    (Kind.FLOATING, 4): "float32", (Kind.FLOATING, 8): "float64", (Kind.HALF, 2): "float16",
    (Kind.BFLOAT16, 2): "bfloat16", (Kind.BOOLEAN, 1): "bool",
}  # fmt: skip


@dataclass(frozen=True)
class ArrayArgument:
    """An array given for a pointer."""

    position: int
    parameter: ParameterType
    array: np.ndarray
    is_output: bool


Value = ArrayArgument | bytes | None  # None: a null pointer


def bind(
    kernel: str, parameters: Sequence[ParameterType], args: Sequence[Any], outputs: Sequence[str]
) -> list[Value]:
    """Match arguments with parameters.

    Raises:
        TypeError, ValueError: naming the kernel, the parameter, what it got and what it needs.
    """
    if len(args) != len(parameters):
        names = ", ".join(f"{p.text} {p.name}" for p in parameters)
        raise TypeError(f"{kernel} takes {len(parameters)} arguments ({names}); {len(args)} were given")
    unknown = set(outputs) - {p.name for p in parameters}
    if unknown:
        raise ValueError(f"{kernel} has no parameter {', '.join(sorted(unknown))} to be an output")
    return [
        _bind_one(kernel, position, parameter, argument, parameter.name in outputs)
        for position, (parameter, argument) in enumerate(zip(parameters, args, strict=True))
    ]


def _bind_one(kernel: str, position: int, parameter: ParameterType, argument: Any, is_output: bool) -> Value:
    where = f"{kernel}: argument {position}, {parameter.text} {parameter.name},"
    if isinstance(argument, Out):
        argument, is_output = argument.array, True
    if parameter.is_pointer:
        if argument is None:
            return None
        _check_array(where, parameter, argument, is_output)
        return ArrayArgument(position, parameter, argument, is_output)
    return _value(where, parameter, argument)


def _check_array(where: str, parameter: ParameterType, array: Any, is_output: bool) -> None:
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"{where} is a pointer and needs a NumPy array (or None for a null pointer); got {array!r}"
        )
    if parameter.dtype and array.dtype.name != parameter.dtype:
        raise TypeError(
            f"{where} needs an array of {parameter.dtype}; got {array.dtype.name}. "
            f"Convert it with .astype, or, if the bits are meant, with .view."
        )
    if array.nbytes % parameter.bytes:
        raise ValueError(
            f"{where} points to elements of {parameter.bytes} bytes; the array has {array.nbytes} bytes"
        )
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{where} needs a contiguous array, since a kernel sees an address and no strides; "
            f"got a view with strides {array.strides}. Make one with numpy.ascontiguousarray."
        )
    if not parameter.is_constant and not array.flags.writeable:
        raise ValueError(f"{where} may be written by the kernel, and the array is read-only")
    if is_output and parameter.is_constant:
        raise ValueError(f"{where} is a pointer to const: it cannot be an output")


def _value(where: str, parameter: ParameterType, argument: Any) -> bytes:
    if argument is None:
        raise TypeError(f"{where} is a value; None was given")
    if isinstance(argument, np.ndarray):
        if argument.ndim:
            raise TypeError(f"{where} is a value; an array of shape {argument.shape} was given")
        argument = argument[()]
    if parameter.dtype is None or parameter.lanes > 1:
        return _raw_value(where, parameter, argument)
    is_number = isinstance(argument, (bool, int, float, np.number, np.bool_)) or hasattr(argument, "dtype")
    if not is_number or isinstance(argument, (complex, np.complexfloating)):
        raise TypeError(f"{where} needs a number; got {argument!r}")
    if parameter.kind in (Kind.INTEGER, Kind.NATURAL, Kind.BOOLEAN):
        return _integer(where, parameter, argument)
    return np.asarray(float(argument)).astype(_dtype(parameter.dtype)).tobytes()


def _integer(where: str, parameter: ParameterType, argument: Any) -> bytes:
    if not isinstance(argument, (bool, int, np.integer, np.bool_)):
        raise TypeError(f"{where} needs a whole number; got {argument!r}")
    if parameter.kind is Kind.BOOLEAN:
        return np.bool_(argument).tobytes()
    limits = np.iinfo(parameter.dtype)
    if not limits.min <= int(argument) <= limits.max:
        raise ValueError(f"{where} holds {limits.min} to {limits.max}; got {int(argument)}")
    return np.dtype(parameter.dtype).type(int(argument)).tobytes()


def _raw_value(where: str, parameter: ParameterType, argument: Any) -> bytes:
    raw = (
        bytes(argument) if isinstance(argument, (bytes, ctypes.Structure)) else np.asarray(argument).tobytes()
    )
    if len(raw) != parameter.bytes:
        raise TypeError(f"{where} has {parameter.bytes} bytes; {argument!r} has {len(raw)}")
    return raw


def _dtype(name: str) -> np.dtype:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)
