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


def test_the_numbers_of_the_run_are_those_of_its_file():
    run = json.loads((FOLDER / "results" / "train_run_124m_h200.json").read_text())
    told = " ".join(README.split())
    for words in (
        f"{run['training']['steps']} steps of 65,536 tokens on {run['tokens_to_train_on'] / 1e6:.0f} MB",
        f"in {run['seconds']:.0f} seconds from the first step to the last",
        f"{run['tokens_per_s'] / 1e3:.0f} thousand tokens a second, {run['tflop_per_s']:.0f} TFLOP/s: "
        f"{100 * run['mfu']:.0f} % of the {run['peak_tflop_per_s']:.0f}",
        f"Held out, {run['held_out'][-1]['held_out']:.3f} nats per byte; "
        f"a five-gram reaches {run['baselines']['five-gram']:.3f}",
    ):
        assert words in told


def test_the_speeds_of_float16_are_those_of_its_file():
    rows = {r["B"]: r["tokens_per_s"] / 1e3 for r in read("train_gpu_fp16")}
    bf16 = {r["B"]: r["tokens_per_s"] / 1e3 for name in ("train_gpu", "train_gpu_32") for r in read(name)
            if r["system"] == "llmlab"}
    told = " ".join(README.split())
    assert (
        f"B = 64 {rows[64]:.1f} thousand tokens a second against {bf16[64]:.1f} of bfloat16, "
        f"B = 32 {rows[32]:.1f} against {bf16[32]:.1f}, B = 4 {rows[4]:.1f} against {bf16[4]:.1f}"
    ) in told


def read(name):
    return json.loads((FOLDER / "results" / f"{name}.json").read_text())["rows"]


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
