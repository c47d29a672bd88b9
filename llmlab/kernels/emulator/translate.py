"""CUDA C++ text to C++ text: includes put in place, shared variables declared, kernels exported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .declarations import Kernel, SharedDeclaration, find
from .tokens import without_comments

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"[^\n]*', re.MULTILINE)
_LINE = re.compile(r'[ \t]*#[ \t]*(?:line[ \t]+)?(\d+)(?:[ \t]+"([^"]*)")?')


Lines = dict[str, dict[int, str]]  # file -> line number -> line


@dataclass(frozen=True)
class Translation:
    """C++ text, the kernels in it by the names under which they are launched, and the text's own lines."""

    text: str
    kernels: dict[str, Kernel]
    sources: Lines  # to quote in messages
    translated: Lines  # as the compiler sees them, for the columns that it gives


def translate(
    code: str,
    filename: str,
    name_expressions: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    macros: Sequence[str] = (),
) -> Translation:
    """Translate CUDA text. Line numbers and file names stay those of the text as given.

    ``macros`` are definitions as compilers take them, ``NAME`` or ``NAME=VALUE``; they hold for the text, and
    not for the emulator's own headers, in which a ``-DT=float`` would do harm.
    """
    expanded = f'#line 1 "{filename}"\n' + with_includes(code, filename, [Path(d) for d in include_dirs])
    plain = without_comments(expanded)
    kernels, shared = find(plain)
    launchable = launchable_kernels(kernels, name_expressions)
    entries = "".join(
        f'#line 1 "<entry of {name}>"\nEMULATED_ENTRY({n}, {name})\n' for n, name in enumerate(launchable)
    )
    body = with_shared_variables(plain, shared)
    defines = "".join(
        f"#define {macro.replace('=', ' ', 1) if '=' in macro else macro + ' 1'}\n" for macro in macros
    )
    text = f'#include "emulated/device.h"\n{defines}{body}\n{entries}'
    return Translation(text, launchable, source_lines(expanded), source_lines(body))


def with_includes(code: str, filename: str, folders: list[Path], seen: frozenset[str] = frozenset()) -> str:
    """Put local includes in place, so that one text holds all that a kernel depends on."""

    def replace(match: re.Match) -> str:
        path = next((folder / match[1] for folder in folders if (folder / match[1]).is_file()), None)
        if path is None or match[1] in seen:
            return match[0] if path is None else ""
        next_line = code.count("\n", 0, match.end()) + 2
        included = with_includes(
            path.read_text(encoding="utf-8"), match[1], [*folders, path.parent], seen | {match[1]}
        )
        guard = "LLMLAB_EMULATED_" + re.sub(r"\W", "_", str(path))
        once = "#pragma once" in included
        included = f'#line 1 "{match[1]}"\n{included.replace("#pragma once", "")}'
        if once:
            included = f"#ifndef {guard}\n#define {guard}\n{included}\n#endif"
        return f'{included}\n#line {next_line} "{filename}"'

    return _INCLUDE.sub(replace, code)


def launchable_kernels(kernels: Sequence[Kernel], name_expressions: Sequence[str]) -> dict[str, Kernel]:
    """The kernels that can be launched, by name: those asked for, and every one that is no template."""
    by_name = {kernel.name: kernel for kernel in reversed(kernels)}
    launchable = {}
    for expression in name_expressions:
        name = expression.partition("<")[0].rpartition("::")[2].strip()
        launchable[expression] = by_name.get(name) or Kernel(name, (), "<" in expression, False, "", None)
    for kernel in kernels:
        if not kernel.is_template and not kernel.namespace:
            launchable.setdefault(kernel.name, kernel)
    return launchable


def with_shared_variables(code: str, declarations: Sequence[SharedDeclaration]) -> str:
    """Turn each ``__shared__`` declaration into one that finds its place in the emulator's shared memory."""
    pieces, end = [], 0
    for declaration in declarations:
        pieces.append(code[end : declaration.start])
        declare = _dynamic_variable if declaration.is_dynamic else _static_variable
        pieces.append(" ".join(declare(declaration, *variable) for variable in declaration.variables))
        pieces.append("\n" * code.count("\n", declaration.start, declaration.end))
        end = declaration.end
    return "".join([*pieces, code[end:]])


def _dynamic_variable(declaration: SharedDeclaration, name: str, dimensions: str) -> str:
    inner = re.sub(r"^\[\s*\]", "", dimensions)  # x[][4] is a pointer to rows of 4
    storage = "" if declaration.in_function else "static "
    alias = f"typedef {declaration.type} {name}_element{inner};"
    place = f'::emulated::dynamic_shared<{name}_element>("{name}")'
    return f"{alias} {storage}{name}_element *const {name} = {place};"


def _static_variable(declaration: SharedDeclaration, name: str, dimensions: str) -> str:
    return (
        f"typedef {declaration.type} {name}_shared_type{dimensions}; "
        f"static ::emulated::SharedVariable<{name}_shared_type> {name}_shared; "
        f'auto &{name} = {name}_shared.here("{name}", {{__FILE__, __LINE__}});'
    )


def source_lines(text: str) -> Lines:
    """The lines of each file of a text with ``#line`` directives."""
    sources: Lines = {}
    file, number = "", 1
    for line in text.split("\n"):
        directive = _LINE.match(line)
        if directive:
            number, file = int(directive[1]), directive[2] or file
            continue
        sources.setdefault(file, {})[number] = line
        number += 1
    return sources
