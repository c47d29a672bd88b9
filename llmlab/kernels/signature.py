"""What a kernel's parameters are, read from its text, and the check of arguments against them.

Neither CuPy nor the CUDA driver knows the types of a kernel's parameters: a Python float would arrive as
eight bytes where the kernel reads four, None as a wild pointer, a view as if it were contiguous. So the text
is asked.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from llmlab.arrays import is_cupy


class _Null:
    def __repr__(self) -> str:
        return "kernels.null"


null = _Null()
"""An explicit null pointer, for kernels that test for one."""


class Out:
    """An array that the kernel must fill: what it held before does not matter.

    On a GPU this says nothing. Emulated, mode ``"check"`` reports elements that are read before they are
    written, and elements that are never written.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array = array


_TYPES = {
    "float": np.float32, "double": np.float64, "__half": np.float16, "half": np.float16,
    "__nv_bfloat16": ml_dtypes.bfloat16, "nv_bfloat16": ml_dtypes.bfloat16, "bool": np.bool_,
    "char": np.int8, "signed char": np.int8, "unsigned char": np.uint8,
    "short": np.int16, "unsigned short": np.uint16,
    "int": np.int32, "unsigned": np.uint32, "unsigned int": np.uint32,
    "long": np.int64, "unsigned long": np.uint64, "index_t": np.int64,
    "long long": np.int64, "long long int": np.int64, "unsigned long long": np.uint64, "size_t": np.uint64,
    "int8_t": np.int8, "uint8_t": np.uint8, "int16_t": np.int16, "uint16_t": np.uint16,
    "int32_t": np.int32, "uint32_t": np.uint32, "int64_t": np.int64, "uint64_t": np.uint64,
}  # fmt: skip
_DTYPES = {name: np.dtype(scalar) for name, scalar in _TYPES.items()}
_RANGES = {
    dtype: (np.iinfo(dtype).min, np.iinfo(dtype).max) for dtype in _DTYPES.values() if dtype.kind in "iu"
}
_C_NAMES = {dtype: name for name, dtype in reversed(_DTYPES.items())}


def cuda_type(dtype: np.dtype) -> str:
    """The CUDA C++ name of a dtype: ``"__nv_bfloat16"`` for bfloat16.

    >>> import numpy as np
    >>> cuda_type(np.dtype(np.float16))
    '__half'
    """
    return _C_NAMES[np.dtype(dtype)]


@functools.cache
def template(name: str, *arguments: np.dtype | bool | int) -> str:
    """The name expression of an instantiation of a template, from dtypes, booleans and whole numbers.

    >>> import numpy as np
    >>> template("softmax_forward_warp", np.dtype(np.float32), 4, True)
    'softmax_forward_warp<float, 4, true>'
    """
    words = (str(word).lower() if isinstance(word, (bool, int)) else cuda_type(word) for word in arguments)
    return f"{name}<{', '.join(words)}>"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: ``dtype`` is None if NumPy has no counterpart, ``text`` is the declaration."""

    name: str
    dtype: np.dtype | None
    is_pointer: bool
    is_const: bool
    text: str = ""


_DEFINITION = re.compile(
    r"(?:template\s*<(?P<template>[^{};()]*)>\s*)?(?:extern\s*\"C\"\s*)?(?:static\s+)?__global__\s+"
    r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(?:static\s+)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?"
    r"(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)"
)


def _definitions(code: str) -> Iterator[re.Match]:
    return _DEFINITION.finditer(re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.DOTALL))


def kernel_names(code: str) -> dict[str, bool]:
    """The kernels that a text defines, each with whether it is a template.

    >>> kernel_names("template <class T> __global__ void f(T* y) {} static __global__ void g() {}")
    {'f': True, 'g': False}
    """
    return {kernel["name"]: kernel["template"] is not None for kernel in _definitions(code)}


def parameters(code: str, expression: str) -> tuple[Parameter, ...] | None:
    """The parameters of a kernel in ``code``; None if its definition cannot be found (as behind a macro).

    >>> code = "template <class T> __global__ void scale(T* y, const T* x, float by) {}"
    >>> [(p.name, str(p.dtype)) for p in parameters(code, "scale<__half>")]
    [('y', 'float16'), ('x', 'float16'), ('by', 'float32')]
    """
    name, _, template_arguments = expression.rstrip("> ").partition("<")
    name = name.rpartition("::")[2].strip()
    found = next((kernel for kernel in _definitions(code) if kernel["name"] == name), None)
    if found is None:
        return None
    names = [part.split("=")[0].split()[-1] for part in (found["template"] or "").split(",") if part.strip()]
    types = dict(zip(names, (argument.strip() for argument in template_arguments.split(",")), strict=False))
    return tuple(
        _parameter(text, types) for text in found["parameters"].split(",") if text.strip() not in ("", "void")
    )


def _parameter(text: str, template_types: dict[str, str]) -> Parameter:
    before, star, _ = text.partition("*")
    words = re.findall(r"[\w:]+", re.sub(r"\b(__restrict__|volatile|__grid_constant__)\b", " ", text))
    base = " ".join(
        word for word in re.findall(r"[\w:]+", before) if word not in ("const", "volatile", "std")
    )
    base = base.replace("std::", "")
    if not star:
        base = base.rpartition(" ")[0]
    base = template_types.get(base, base)
    is_const = "const" in before.split()
    return Parameter(words[-1], _DTYPES.get(base), bool(star), is_const, " ".join(text.split()))


def convert(kernel: str, parameters: tuple[Parameter, ...], args: tuple) -> list[Any]:
    """Check ``args`` against a kernel's parameters; return them, Python numbers made the kernel's types.

    Raises:
        TypeError: naming the parameter: None, an array for a value, a value for an array, a wrong dtype; or a
            wrong count of arguments.
        ValueError: naming the parameter: a view that is not contiguous, a read-only array for an output, a
            number outside the parameter's range.
    """
    if len(args) != len(parameters):
        names = ", ".join(parameter.name for parameter in parameters)
        raise TypeError(f"{kernel} takes {len(parameters)} arguments ({names}); {len(args)} were given")
    return [
        (_pointer if parameter.is_pointer else _value)(kernel, parameter, value)
        for parameter, value in zip(parameters, args, strict=True)
    ]


# Launches are frequent and short: what is right passes by few tests; only what is wrong is looked at closely.


def _pointer(kernel: str, parameter: Parameter, value: Any) -> Any:
    array = value.array if type(value) is Out else value
    is_numpy = isinstance(array, np.ndarray)
    if array is null or (
        (is_numpy or is_cupy(array))
        and (parameter.dtype is None or array.dtype == parameter.dtype)
        and array.flags.c_contiguous
        and (parameter.is_const or not is_numpy or array.flags.writeable)
    ):
        return value
    raise _wrong_pointer(f"{kernel}: argument {parameter.name}", parameter, array)


def _wrong_pointer(where: str, parameter: Parameter, value: Any) -> Exception:
    if value is None:
        return TypeError(
            f"{where} is None, which CUDA would read as a wild pointer; pass an array, or kernels.null if "
            "the kernel tests for a null pointer"
        )
    if not (isinstance(value, np.ndarray) or is_cupy(value)):
        needed = "an array" if parameter.dtype is None else f"an array of {parameter.dtype}"
        return TypeError(f"{where} is a {type(value).__name__}; it needs {needed}")
    if parameter.dtype is not None and value.dtype != parameter.dtype:
        return TypeError(
            f"{where} is an array of {value.dtype}; the kernel reads {parameter.dtype}: "
            f"convert it with {parameter.name}.astype"
        )
    if not value.flags.c_contiguous:
        return ValueError(
            f"{where} is a view with strides {value.strides}; a kernel sees only its first address: "
            f"copy it with ascontiguousarray({parameter.name})"
        )
    return ValueError(f"{where} is read-only, and the kernel may write it; pass a copy")


def _value(kernel: str, parameter: Parameter, value: Any) -> Any:
    dtype = parameter.dtype
    if isinstance(value, np.generic) and (dtype is None or value.dtype == dtype):
        return value
    if dtype is not None and isinstance(value, (bool, int, float, np.generic)):
        if dtype not in _RANGES:
            return dtype.type(value)
        low, high = _RANGES[dtype]
        if isinstance(value, (bool, int, np.integer, np.bool_)) and low <= value <= high:
            return _whole_number(dtype, int(value))
    raise _wrong_value(f"{kernel}: argument {parameter.name}", dtype, value)


@functools.lru_cache(maxsize=4096)
def _whole_number(dtype: np.dtype, value: int) -> np.integer:
    return dtype.type(value)  # NumPy takes a microsecond for it, and sizes come again at every step


def _wrong_value(where: str, dtype: np.dtype | None, value: Any) -> Exception:
    if isinstance(value, np.ndarray) or is_cupy(value):
        return TypeError(
            f"{where} is an array of shape {value.shape}; the kernel takes a single value: pass .item()"
        )
    if dtype is None or value is None or value is null:
        return TypeError(f"{where} is {value!r}; the kernel takes a single value, as a NumPy scalar")
    if not isinstance(value, (bool, int, float, np.generic)):
        return TypeError(f"{where} is a {type(value).__name__}; it needs a number ({dtype})")
    if not isinstance(value, (bool, int, np.integer, np.bool_)):
        return TypeError(f"{where} is {value!r}; the kernel takes a whole number ({dtype})")
    low, high = _RANGES[dtype]
    return ValueError(f"{where} is {value}, outside {dtype} ({low} to {high})")
