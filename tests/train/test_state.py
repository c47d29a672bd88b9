import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from llmlab.errors import UserError
from llmlab.train import state

ARRAYS = {"master": np.arange(1000, dtype=np.float32), "optimizer.step": np.array([5])}


def save(folder, step, keep=5):
    return state.save(folder, step, {n: a + step for n, a in ARRAYS.items()}, {"seconds": 1.5}, keep)


def latest_step(folder):
    arrays, facts = state.load_latest(folder)
    assert (arrays["master"] == ARRAYS["master"] + facts["step"]).all()
    return facts["step"]


def test_a_state_comes_back(tmp_path):
    save(tmp_path, 5)
    arrays, facts = state.load_latest(tmp_path)
    assert arrays["master"].dtype == np.float32
    assert arrays["optimizer.step"].tolist() == [10]
    assert (facts["step"], facts["seconds"]) == (5, 1.5)


def test_a_writer_that_fails_half_way_leaves_the_last_state(tmp_path, monkeypatch):
    save(tmp_path, 5)

    def half(tensors, path):
        with open(path, "wb") as file:
            file.write(b"\0" * 2000)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state, "save_file", half)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 10)
    assert latest_step(tmp_path) == 5
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("writes_before_death", [0, 1])
def test_a_killed_save_leaves_the_last_state(tmp_path, writes_before_death):
    """SIGKILL while the arrays (0) or the JSON (1) of step 10 are half written."""
    save(tmp_path, 5)
    program = f"""
import os, signal
import numpy as np
from llmlab.train import state

replace, left = os.replace, {writes_before_death}
def replace_or_die(a, b):
    global left
    if left == 0:
        os.truncate(a, os.path.getsize(a) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    replace(a, b)
state.os.replace = replace_or_die
state.save({str(tmp_path)!r}, 10, {{"master": np.zeros(1000, np.float32)}}, {{}}, 5)
"""
    died = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert list(tmp_path.glob("*.tmp"))
    assert latest_step(tmp_path) == 5
    save(tmp_path, 10)  # the leftover is in nobody's way
    assert latest_step(tmp_path) == 10


def test_a_damaged_state_is_passed_over(tmp_path):
    save(tmp_path, 5)
    newest = save(tmp_path, 10).with_suffix(".safetensors")
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    with pytest.raises(UserError, match="checksum"):
        state.load(tmp_path / "step-00000010.json")
    assert latest_step(tmp_path) == 5


def test_parts_of_two_steps_never_mix(tmp_path):
    save(tmp_path, 5)
    save(tmp_path, 10)
    os.replace(tmp_path / "step-00000005.safetensors", tmp_path / "step-00000010.safetensors")
    with pytest.raises(UserError, match="checksum"):
        state.load(tmp_path / "step-00000010.json")
    with pytest.raises(UserError):
        state.load_latest(tmp_path)


def test_old_states_are_pruned_and_leftovers_are_none(tmp_path):
    (tmp_path / "step-00000099.json.tmp").write_text("{")
    (tmp_path / "step-00000098.safetensors.tmp").write_text("{")
    (tmp_path / "step-latest.json").write_text("{}")
    for step in (1, 2, 3, 100_000_000):
        save(tmp_path, step, keep=2)
    assert [p.name for p in state.states(tmp_path)] == ["step-100000000.json", "step-00000003.json"]
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


def test_other_formats_are_refused(tmp_path):
    path = save(tmp_path, 5)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(UserError, match="format 99"):
        state.load(path)


def test_an_empty_folder_has_no_state(tmp_path):
    with pytest.raises(UserError, match="no saved state"):
        state.load_latest(tmp_path)
