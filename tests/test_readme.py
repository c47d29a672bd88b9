"""The README keeps its word: its example runs as pasted, its table is the book's, its files exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_as_pasted_and_learns(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    loss = float(re.match(r"(\d\.\d\d) nats a byte", ran.stdout)[1])
    assert loss < 2.6  # bigrams counted on the whole text reach 2.3, unigrams 3.2


def test_the_table_lists_the_chapters_of_the_book():
    book = tomllib.loads((ROOT / "book.toml").read_text(encoding="utf-8"))
    chapters = [chapter for part in book["part"] for chapter in part["chapter"]]
    wanted = [
        f"| {c['file'][:2]} | [{c['title']}](chapters/{c['file']}.ipynb) | {c['minutes']} | "
        + ", ".join(c["prerequisites"])
        + " |"
        for c in chapters
    ]
    assert re.findall(r"^\| \w\w? \|.*", README, re.MULTILINE) == wanted


def test_every_local_link_leads_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_every_make_target_and_path_that_is_named_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets
    paths = re.findall(r"^    (\w+/\S*|llmlab/\S+)  ", README, re.MULTILINE)
    assert len(paths) == 6
    assert [path for path in paths if not (ROOT / path).exists()] == []
