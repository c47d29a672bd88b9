"""Show a function of the package in a chapter: its source as shipped, so that no page drifts from it."""

import ast
import inspect
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
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        raise TypeError(f"show needs functions defined with `def`, got {function!r}")
    lines = text.splitlines()
    drop = set(range(node.lineno - 1))
    first = node.body[0]
    if not docstring and ast.get_docstring(node) is not None and len(node.body) > 1:
        drop |= set(range(first.lineno - 1, first.end_lineno))
    return "\n".join(line for number, line in enumerate(lines[: node.end_lineno]) if number not in drop)
