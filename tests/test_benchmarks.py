"""The numbers in benchmarks/README.md are those that were measured, and it lists every script."""

import json
import re
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "benchmarks"
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_tokens_per_second_are_the_measured_ones():
    rows = json.loads((FOLDER / "results" / "train_gpu.json").read_text())["rows"]
    measured = {(r["B"], r["system"]): round(r["tokens_per_s"] / 1000) for r in rows if r["model"] == "124M"}
    told = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", README, re.MULTILINE)
    assert {int(B) for B, *_ in told} == {B for B, _ in measured}
    for B, *numbers in told:
        assert [int(n) for n in numbers] == [measured[int(B), s] for s in ("llmlab", "compile", "eager")]


def test_every_script_is_listed_and_every_file_named_exists():
    assert [p.name for p in FOLDER.glob("*.py") if f"`{p.name}`" not in README] == []
    named = re.findall(r"`((?:results/)?\w+\.(?:py|json))`", README)
    assert [name for name in named if not (FOLDER / name).exists()] == []
