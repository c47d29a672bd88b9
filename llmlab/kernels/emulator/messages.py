"""A compiler's complaint, told in terms of the kernel's text."""

from __future__ import annotations

import re

_ERROR = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<text>[^\n]*)", re.MULTILINE
)
_SHOWN = 3

_HINTS = (
    (
        r"\basm\b",
        "Inline PTX cannot run on a CPU. Keep each instruction in a short __device__ function "
        "with a second branch under #ifdef LLMLAB_EMULATED.",
    ),
    (r"<<<", "Kernels are launched from Python: leave host code out of the text."),
    (
        r"\bcooperative_groups\b|\bwmma\b|\bcuda::",
        "The emulator does not know this library: use the built-in functions.",
    ),
    (
        r"\bcuda(Malloc|Memcpy|Free|Launch|DeviceSynchronize)",
        "The CUDA runtime is called from the host: leave host code out of the text.",
    ),
)


def compile_message(output: str, filename: str, sources: dict[str, dict[int, str]]) -> str:
    """The first errors with the lines that they are about, and what usually mends them."""
    found = list(_ERROR.finditer(output))
    if not found:
        return f"{filename} does not compile:\n{output.strip()[:4000]}"
    parts = [f"{filename} does not compile."]
    for match in found[:_SHOWN]:
        file, number = match["file"], int(match["line"])
        line = sources.get(file, {}).get(number, "")
        parts.append(f"{file}:{number}: {match['text']}" + (f"\n{quoted(number, line)}" if line else ""))
        hint = next((hint for pattern, hint in _HINTS if re.search(pattern, line + match["text"])), None)
        if hint:
            parts.append(hint)
    if len(found) > _SHOWN:
        parts.append(f"({len(found) - _SHOWN} more)")
    return "\n".join(parts)


def quoted(number: int, line: str) -> str:
    """A line of the kernel's text as messages show it."""
    return f"{number:>6} | {line.rstrip()}"
