"""Prove that a chapter is true: its pair, its outputs, its widgets, the code it shows, and a fresh run.

`static` reads files only (milliseconds). `fresh_run` executes the notebook under strict nbval, on the CPU,
within the time that book.toml allows.
"""

import ast
import importlib
import inspect
import os
import subprocess
import sys
import textwrap

import nbformat

from llmlab.book import pair, widget_state
from llmlab.book.run import environment
from llmlab.book.toc import Book, Chapter

SHIPPED = "shipped:"  # a tag such as "shipped:llmlab.ops.gelu.forward"
SOLUTION = "solution"
START = 30  # seconds that pytest and the kernel may take to start on a busy machine


def static(book: Book, chapter: Chapter) -> list[str]:
    """Everything that is wrong with the chapter's files, one sentence each; empty if nothing is."""
    if not chapter.notebook.is_file():
        return [f"has no {chapter.notebook.name}; make it with `llmlab book run {chapter.file}`"]
    notebook = pair.read_notebook(chapter.notebook)
    return [
        *pair.differences(chapter),
        *_opening(book, chapter, notebook),
        *_executed(notebook),
        *_solutions(notebook),
        *_shipped(notebook),
        *widget_state.problems(notebook),
    ]


def fresh_run(chapter: Chapter) -> list[str]:
    """Run the stored notebook under nbval, its report on the terminal; say what failed."""
    command = [
        *(sys.executable, "-m", "pytest", str(chapter.notebook), "-q", "--no-header"),
        *("--nbval" if chapter.nbval == "strict" else "--nbval-lax", "--nbval-current-env"),
        f"--nbval-cell-timeout={chapter.seconds}",
        *("-c", os.devnull, "--rootdir", str(chapter.folder)),
        *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:timeout", "-p", "no:doctest"),
    ]
    sys.stdout.flush()
    try:
        done = subprocess.run(command, env=environment(), timeout=chapter.seconds + START, check=False)
    except subprocess.TimeoutExpired:
        return [f"ran longer than the {chapter.seconds} s that book.toml allows it"]
    found = "a fresh run does not give the stored outputs; nbval's report is above"
    return [] if done.returncode == 0 else [found]


def orphans(book: Book) -> list[str]:
    """Notebooks that lie beside the chapters and that book.toml does not list."""
    listed = {chapter.notebook.name for chapter in book.chapters}
    return [
        f"chapters/{path.name} is not listed in book.toml"
        for path in sorted(book.folder.glob("*.ipynb"))
        if path.name not in listed
    ]


def _opening(book: Book, chapter: Chapter, notebook: nbformat.NotebookNode) -> list[str]:
    first = notebook.cells[0].source.splitlines() if notebook.cells else []
    heading, line = f"# {chapter.title}", book.opening(chapter)
    found = []
    if heading not in first:
        found.append(f"its first cell needs the heading {heading!r}, the title in book.toml")
    if line not in first:
        found.append(f"its first cell needs this line, which book.toml gives:\n    {line}")
    return found


def _executed(notebook: nbformat.NotebookNode) -> list[str]:
    """Every code cell ran, in order, with no error and nothing on stderr (nbval lets unrun cells pass)."""
    found, count = [], 0
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        count += 1
        if cell.execution_count != count:
            found.append(f"cell {number} has execution count {cell.execution_count}, needs {count}: run it")
        for output in cell.outputs:
            if output.output_type == "error":
                found.append(f"cell {number} ended with {output.ename}: {output.evalue}")
            elif output.get("name") == "stderr":
                found.append(f"cell {number} wrote on stderr: {output.text.strip()[:80]!r}")
    return found


def _solutions(notebook: nbformat.NotebookNode) -> list[str]:
    """Each cell tagged `solution` calls `check` on a solution, and it was right."""
    return [
        f"cell {number} is a solution, and its check does not say ✓"
        for number, cell in enumerate(notebook.cells)
        if SOLUTION in cell.metadata.get("tags", ())
        and not any(output.get("text", "").startswith("✓") for output in cell.outputs)
    ]


def _shipped(notebook: nbformat.NotebookNode) -> list[str]:
    """Cells tagged `shipped:package.module.function` define it with the package's very syntax tree."""
    found = []
    for number, cell in enumerate(notebook.cells):
        for tag in cell.metadata.get("tags", ()):
            if tag.startswith(SHIPPED) and not same_code(cell.source, tag.removeprefix(SHIPPED)):
                found.append(f"cell {number} shows {tag.removeprefix(SHIPPED)} otherwise than it is shipped")
    return found


def same_code(text: str, name: str) -> bool:
    """Whether some function in `text` has the arguments and body of the function `name` of the package.

    Name, decorators, docstring, comments and layout may differ; anything that runs may not.

    >>> same_code("def of(book): return [1]", "llmlab.book.check.orphans")
    False
    """
    module, _, attribute = name.rpartition(".")
    function = getattr(importlib.import_module(module), attribute)
    function = inspect.unwrap(getattr(function, "text", function))
    shipped = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    shown = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return any(_bare(node) == _bare(shipped) for node in shown)


def _bare(function: ast.FunctionDef) -> str:
    """The syntax tree of arguments and body, as text, without annotations and docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return "\n".join([ast.dump(function.args), *(ast.dump(statement) for statement in body)])
