"""Finds the kernels and the shared variables that a CUDA text declares."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .tokens import Token, closing, split_at_commas, tokens


@dataclass(frozen=True)
class Kernel:
    """A ``__global__`` function as its text declares it."""

    name: str
    parameters: tuple[str, ...]
    is_template: bool
    is_extern_c: bool
    namespace: str
    max_threads: int | None  # of __launch_bounds__, where it is a number


@dataclass(frozen=True)
class SharedDeclaration:
    """A ``__shared__`` declaration: where it stands and what it says."""

    start: int
    end: int
    is_dynamic: bool
    in_function: bool
    type: str
    variables: tuple[tuple[str, str], ...]  # (name, "[dimensions]")


@dataclass
class Scope:
    kind: str  # "namespace", "extern C", "type", "code"
    name: str = ""


_QUALIFIERS = {"extern", "static", "volatile", "const", "constexpr"}


def find(code: str) -> tuple[list[Kernel], list[SharedDeclaration]]:
    """The kernels and shared declarations of text without comments."""
    kernels, shared = _walk(code)
    spelt_out = _with_kernel_macros(code)
    if spelt_out != code:
        kernels, _ = _walk(spelt_out)
    return kernels, shared


def _walk(code: str) -> tuple[list[Kernel], list[SharedDeclaration]]:
    found = list(tokens(code))
    scopes: list[Scope] = []
    kernels: list[Kernel] = []
    shared: list[SharedDeclaration] = []
    statement = 0  # the token with which the current statement begins
    i = 0
    while i < len(found):
        word = found[i].text
        if word == "{":
            scopes.append(_scope([t.text for t in found[statement:i]]))
        elif word == "}" and scopes:
            scopes.pop()
        elif word == "__global__":
            kernels += _kernel(found, statement, i, scopes)
        elif word == "__shared__":
            declaration, i = _shared(code, found, statement, i, scopes)
            shared.append(declaration)
            statement = i
            continue
        if word in "{};":
            statement = i + 1
        i += 1
    return kernels, shared


def _with_kernel_macros(code: str) -> str:
    """Spells out macros such as ``#define KERNEL extern "C" __global__ void`` (only to look for kernels)."""
    for name, body in re.findall(
        r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]*__global__[^\n]*)$", code, re.MULTILINE
    ):
        code = re.sub(rf"(?<![\w#]){name}(?=[ \t]+\w+[ \t]*\()", lambda _: body, code)  # noqa: B023
    return code


def _scope(words: list[str]) -> Scope:
    if "namespace" in words:
        name = "".join(words[words.index("namespace") + 1 :])
        return Scope("namespace", name)
    if words == ["extern", '"C"']:
        return Scope("extern C")
    if "(" not in words and {"struct", "class", "union", "enum"} & set(words):
        return Scope("type")
    return Scope("code")


def _kernel(found: list[Token], statement: int, i: int, scopes: list[Scope]) -> list[Kernel]:
    before = [token.text for token in found[statement:i]]
    max_threads = None
    i += 1
    while i + 1 < len(found) and found[i].text not in "{};":
        if found[i].text in ("__launch_bounds__", "__attribute__", "__maxnreg__", "__cluster_dims__"):
            end = closing(found, i + 1)
            if (
                found[i].text == "__launch_bounds__"
                and found[i + 2].text.isdigit()
                and found[i + 3].text in ",)"
            ):
                max_threads = int(found[i + 2].text)
            i = end + 1
            continue
        if found[i + 1].text == "(" and re.fullmatch(r"[A-Za-z_]\w*", found[i].text):
            return [
                Kernel(
                    name=found[i].text,
                    parameters=_parameter_names(found, i + 1),
                    is_template="template" in before,
                    is_extern_c='"C"' in before or any(s.kind == "extern C" for s in scopes),
                    namespace="::".join(s.name for s in scopes if s.kind == "namespace"),
                    max_threads=max_threads,
                )
            ]
        i += 1
    return []


def _parameter_names(found: list[Token], opening: int) -> tuple[str, ...]:
    inside = " ".join(token.text for token in found[opening + 1 : closing(found, opening)])
    names = []
    for parameter in split_at_commas(inside):
        words = re.findall(r"[A-Za-z_]\w*", parameter.partition("=")[0].partition("[")[0])
        if words != ["void"]:
            names.append(words[-1])
    return tuple(names)


def _shared(
    code: str, found: list[Token], statement: int, i: int, scopes: list[Scope]
) -> tuple[SharedDeclaration, int]:
    """The declaration in which token i is ``__shared__``, and the place of the token after its semicolon."""
    first = i
    while first > statement and found[first - 1].text in _QUALIFIERS:
        first -= 1
    first = _over_alignment(found, statement, first)
    depth, last = 0, i
    while last < len(found) - 1 and not (found[last].text == ";" and depth == 0):
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(found[last].text, 0)
        last += 1
    text = code[found[first].start : found[last].start]
    words = re.findall(r"\w+", text.partition("[")[0])
    type_, variables = _type_and_variables(_without_qualifiers(text))
    declaration = SharedDeclaration(
        start=found[first].start,
        end=found[last].end,
        is_dynamic="extern" in words,
        in_function=any(scope.kind == "code" for scope in scopes),
        type=type_,
        variables=variables,
    )
    return declaration, last + 1


def _over_alignment(found: list[Token], statement: int, first: int) -> int:
    """Steps back over ``__align__(16)`` or ``alignas(16)`` before ``__shared__``, and the words before it."""
    if first == statement or found[first - 1].text != ")":
        return first
    opening = first - 1
    while opening > statement and found[opening].text != "(":
        opening -= 1
    if found[opening - 1].text not in ("__align__", "alignas"):
        return first
    first = opening - 1
    while first > statement and found[first - 1].text in _QUALIFIERS:
        first -= 1
    return first


def _without_qualifiers(text: str) -> str:
    text = re.sub(r"\b(?:__align__|alignas)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)", " ", text)
    return re.sub(r"\b(?:extern|static|constexpr|__shared__)\b", " ", text).strip()


def _type_and_variables(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Splits ``float a[2][3], b`` into the type and the variables with their dimensions."""
    end = _end_of_first_name(text)
    name = re.search(r"\w+\s*$", text[:end])
    type_ = text[: name.start()].strip()
    pointer = ""
    while type_.endswith("*"):
        type_, pointer = type_[:-1].strip(), pointer + "*"
    variables = []
    for part in split_at_commas(text[name.start() :].replace("<", "\0").replace(">", "\1")):
        declarator = part.replace("\0", "<").replace("\1", ">").partition("=")[0].strip()
        match = re.match(r"\**\s*(\w+)\s*(.*)", declarator, re.DOTALL)
        variables.append((match[1], " ".join(match[2].split())))
    return type_ + pointer, tuple(variables)


def _end_of_first_name(text: str) -> int:
    depth = 0
    for i, character in enumerate(text):
        if character in "<({":
            depth += 1
        elif character in ">)}":
            depth -= 1
        elif character in "[,=" and depth == 0:
            return i
    return len(text)
