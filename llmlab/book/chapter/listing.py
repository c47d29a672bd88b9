"""Show a function of the package in a chapter: its source as shipped, so that no page drifts from it."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable


def show(*functions: Callable, docstring: bool = False) -> None:
    """Display the source of package functions, without their decorators and (unless asked for) docstrings.

    The text comes from the package at the moment the cell runs, and strict nbval compares it with the stored
    one: change the function, and the chapter's check is red until the chapter is run again and read again.
    """
    from IPython.display import Markdown, display

    sources = "\n\n\n".join(source(function, docstring) for function in functions)
    display(Markdown(f"```python\n{sources}\n```"))


def source(function: Callable, docstring: bool = False) -> str:
    """The source of `function` from its `def` line on.

    >>> def double(x):
    ...     "Twice x."
    ...     return 2 * x
    >>> print(source(double))
    def double(x):
        return 2 * x
    """
    function = inspect.unwrap(getattr(function, "text", function))
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (TypeError, OSError):
        raise TypeError(f"show needs functions written in Python, got {function!r}") from None
    node = ast.parse(text).body[0]
    if getattr(node, "name", None) != function.__name__:
        raise TypeError(f"show needs functions defined with `def`, got {function!r}")
    lines = text.splitlines()
    drop = set(range(node.lineno - 1))
    first = node.body[0]
    if not docstring and ast.get_docstring(node) is not None and len(node.body) > 1:
        drop |= set(range(first.lineno - 1, first.end_lineno))
    return "\n".join(line for number, line in enumerate(lines[: node.end_lineno]) if number not in drop)


def show_cuda(file: str, *names: str) -> None:
    """Display kernels and device functions of `llmlab/kernels/<file>`, as `show` does Python functions."""
    from IPython.display import Markdown, display

    sources = "\n\n".join(cuda_source(file, name) for name in names)
    display(Markdown(f"```c++\n{sources}\n```"))


def cuda_source(file: str, name: str) -> str:
    """The definition of a function in a kernel file: from its template line to its closing brace.

    Raises `LookupError` if the file has no such function.

    >>> print(cuda_source("common.cuh", "warp_sum"))
    __device__ __forceinline__ float warp_sum(float v) { return warp_reduce<Sum>(v); }
    """
    from llmlab.kernels import source

    lines = source.read(file).splitlines()
    named = re.compile(rf"^(template|__global__|__device__).*\b{name}\(|^{name}\(")
    found = [number for number, line in enumerate(lines) if named.match(line)]
    if not found:
        raise LookupError(f"{file} defines no function {name}")
    first = last = found[0]
    while first and lines[first - 1].startswith(("template", "__global__")):
        first -= 1
    while not lines[last].startswith("}") and not (last == found[0] and lines[last].endswith("}")):
        last += 1
    return "\n".join(lines[first : last + 1])
