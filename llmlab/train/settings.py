"""Settings written once: a dataclass field with meaning and limits becomes check, TOML key and flag."""

import argparse
import operator
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, field
from pathlib import Path
from typing import Any, get_origin

from llmlab.errors import UserError, suggestion

KINDS = {int: "a whole number", float: "a number", str: "a string", tuple: "one or more strings"}
COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


def setting(
    default: Any,
    help: str,
    *,
    limits: Mapping[str, float] | None = None,
    choices: tuple[str, ...] = (),
    fixed: bool = True,
) -> Any:
    """A dataclass field that says what it means, with unit, and what it may be.

    `limits` maps a comparison to its bound, such as `{">": 0}`. A `fixed` setting is part of what a run is:
    the run keeps it when it is resumed.
    """
    metadata = {"help": help, "limits": dict(limits or {}), "choices": choices, "fixed": fixed}
    return field(default=default, metadata=metadata)


def kind(spec: Field) -> type:
    """The plain type of a setting: int, float, str, or tuple for several strings."""
    return get_origin(spec.type) or spec.type


def check(spec: Field, value: Any) -> None:
    """Raise `UserError` unless `value` has the setting's type and keeps its limits."""
    wanted, limits, choices = kind(spec), spec.metadata["limits"], spec.metadata["choices"]
    number = wanted in (int, float)
    right_type = type(value) is wanted or (wanted is float and type(value) is int)
    if wanted is tuple:
        right_type = right_type and len(value) > 0 and all(type(v) is str for v in value)
    if not right_type:
        raise UserError(f"{spec.name} = {value!r}: needs {KINDS[wanted]} ({spec.metadata['help']})")
    if choices and value not in choices:
        raise UserError(f"{spec.name} = {value!r}: needs one of {', '.join(choices)}")
    if number and not all(COMPARE[sign](value, bound) for sign, bound in limits.items()):
        raise UserError(f"{spec.name} = {value!r}: must be {bounds(spec)} ({spec.metadata['help']})")
    if number and not abs(value) <= sys.float_info.max:
        raise UserError(f"{spec.name} = {value!r}: must be finite ({spec.metadata['help']})")


def bounds(spec: Field) -> str:
    """A setting's limits in words, such as ">= 0 and < 1"."""
    return " and ".join(f"{sign} {bound}" for sign, bound in spec.metadata["limits"].items())


def add_arguments(
    parser: argparse.ArgumentParser, sections: Mapping[str, tuple[str, Iterable[Field]]]
) -> None:
    """Give a parser one flag a setting, grouped by section; only flags that were typed appear in its
    result.
    """
    for name, (title, specs) in sections.items():
        group = parser.add_argument_group(name, title)
        for spec in specs:
            default = " ".join(spec.default) if kind(spec) is tuple else spec.default
            notes = [spec.metadata["help"], bounds(spec), f"default {default}" if default != "" else ""]
            group.add_argument(
                "--" + spec.name.replace("_", "-"),
                dest=spec.name,
                default=argparse.SUPPRESS,
                help="; ".join(filter(None, notes)).replace("%", "%%"),
                **(
                    {"nargs": "+", "metavar": "TEXT"}
                    if kind(spec) is tuple
                    else {"choices": spec.metadata["choices"]}
                    if spec.metadata["choices"]
                    else {"type": kind(spec), "metavar": {int: "N", float: "X", str: "TEXT"}[kind(spec)]}
                ),
            )


def read_toml(path: str | Path, sections: Mapping[str, Mapping[str, Field]]) -> dict[str, Any]:
    """The settings in a TOML file with one table a section, by name.

    Raises `UserError` for a missing or malformed file, and for a table or key that is not known, with the
    nearest one that is.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # of the TOML, of its encoding, of a number with thousands of digits
        raise UserError(f"{path}: not valid TOML: {error}") from error
    values = {}
    for section, table in tables.items():
        if section not in sections or not isinstance(table, dict):
            raise UserError(f"{path}: unknown table [{section}]{suggestion(section, sections)}")
        for name, value in table.items():
            if name not in sections[section]:
                raise UserError(
                    f"{path}: unknown key {name!r} in [{section}]{suggestion(name, sections[section])}"
                )
            values[name] = tuple(value) if isinstance(value, list) else value
    return values
