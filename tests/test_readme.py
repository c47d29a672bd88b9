"""The README keeps its word: its example runs as pasted, its table is the book's, its files exist."""

import json
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


def test_speeds_are_the_measured_ones():
    results = {
        name: json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
        for name in ("train_run_124m_h200", "train_gpu", "train_gpu_774M_64")
    }
    run = results["train_run_124m_h200"]
    wanted = [f"{run['tokens_per_s'] / 1000:.0f} thousand tokens a second, {100 * run['mfu']:.0f} %"]
    for name, B, peer, words in (
        ("train_gpu", 64, "compile", "{:.2f} times as fast as under `torch.compile` with 64 sequences"),
        ("train_gpu", 4, "compile", "with 4, where the host limits PyTorch, {:.1f} times"),
        ("train_gpu", 4, "graphs", "and {:.1f} times when both replay CUDA graphs"),
        ("train_gpu_774M_64", 64, "compile", "one of 774M {:.2f} times"),
    ):
        speed = {r["system"]: r["tokens_per_s"] for r in results[name]["rows"] if r["B"] == B and "ms" in r}
        wanted.append(words.format(speed["llmlab"] / speed[peer]))
    told = " ".join(README.split())
    assert [words for words in wanted if words not in told] == []


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
