"""The profile counts what Nsight Compute counted on an H200 in benchmarks/profile_vs_ncu.py."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from llmlab.kernels import emulator

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MEASURED = {
    launch["launch"]: launch
    for launch in json.loads((BENCHMARKS / "results" / "profile_vs_ncu.json").read_text())["launches"]
}


@pytest.fixture(scope="module")
def comparison():
    spec = importlib.util.spec_from_file_location("profile_vs_ncu", BENCHMARKS / "profile_vs_ncu.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compiled_kernels(comparison):
    return emulator.Module(
        comparison.CODE,
        name_expressions=comparison.expressions(),
        mode="profile",
        filename="profile_vs_ncu.cu",
    )


def test_the_same_launches(comparison):
    assert [launch.label for launch in comparison.launches()] == list(MEASURED)
    assert set(comparison.METRICS) == set(MEASURED["copy"]) - {"launch"}


@pytest.mark.parametrize(
    "kind",
    ["copy", "transpose", "histogram", "row_sums", "shared_strided", "shared_gather", "shared_scatter"],
)
def test_equal_counters(comparison, compiled_kernels, kind):
    launches = [launch for launch in comparison.launches() if launch.label.startswith(kind)]
    assert launches
    ours = {launch.label: comparison.emulated(compiled_kernels, launch) for launch in launches}
    hardware = {label: {name: MEASURED[label][name] for name in counts} for label, counts in ours.items()}
    assert ours == hardware
