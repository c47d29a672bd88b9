"""The numbers in benchmarks/README.md are those that were measured, and it lists every script."""

import json
import re
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent.parent / "benchmarks"
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_tables_are_those_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import report

    assert len(report.PLACE.findall(README)) == 7
    assert report.filled(README) == README


def test_precisions_learn_the_same_within_the_band():
    runs = json.loads((FOLDER / "results" / "precision_h200.json").read_text())["runs"]
    losses = {name: smoothed(run["losses"]) for name, run in runs.items()}
    assert len(losses["fp32"]) == 281
    band = float(re.search(r"The band that a test holds them to is ([\d.]+)\.", README)[1])
    for name in ("bf16", "fp16"):
        assert np.abs(losses[name] - losses["fp32"]).max() < band
        assert abs(runs[name]["held_out"] - runs["fp32"]["held_out"]) < band


def smoothed(losses, over=20):
    return np.convolve(losses, np.ones(over) / over, mode="valid")


def test_every_script_is_listed_and_every_file_named_exists():
    assert [p.name for p in FOLDER.glob("*.py") if f"`{p.name}`" not in README] == []
    named = re.findall(r"`((?:results/)?\w+\.(?:py|json))`", README)
    assert [name for name in named if not (FOLDER / name).exists()] == []
