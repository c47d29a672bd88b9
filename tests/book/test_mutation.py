"""The book's check can fail: one constant changed in a chapter, an op or a stored output turns it red.

`make test` runs the check on the same chapter unchanged, where it is green.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHAPTER = "00-forward-pass"


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A checkout with the package and one chapter."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "llmlab", root / "llmlab", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "chapters").mkdir()
    for ending in ("md", "ipynb"):
        shutil.copy(ROOT / "chapters" / f"{CHAPTER}.{ending}", root / "chapters")
    toc = (ROOT / "book.toml").read_text(encoding="utf-8")
    first = toc.index("[[part.chapter]]")
    second = toc.find("[[part", first + 1)
    (root / "book.toml").write_text(toc if second < 0 else toc[:second], encoding="utf-8")
    return root


def check(root: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "llmlab", "book", "check", CHAPTER]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "found_by"),
    [
        (f"chapters/{CHAPTER}.md", "initialise(seed=0)", "initialise(seed=1)", "'p = initialise(seed=1)'"),
        ("llmlab/ops/gelu.py", "\n_B = _A * 0.044715", "\n_B = _A * 0.054715", "gelu(-1), gelu(1)"),
        (f"chapters/{CHAPTER}.ipynb", "GPT-2 124,439,808", "GPT-2 124,439,809", "124,439,809"),
    ],
    ids=["a chapter", "an op", "a stored output"],
)
def test_one_changed_constant_turns_the_check_red(copy, file, old, new, found_by):
    path = copy / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    try:
        code, report = check(copy)
    finally:
        path.write_text(text, encoding="utf-8")
    assert (code, found_by in report) == (1, True), report
