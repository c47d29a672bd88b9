"""Whole runs: what they write, and that nothing that happens to one costs its work."""

import os
import re
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest

from llmlab.data import dataset
from llmlab.errors import UserError
from llmlab.train import metrics, run, state
from llmlab.train.loop import interruptible
from llmlab.train.readback import Readback


def figures(folder):
    """A run's metrics without the times, which no two runs share."""
    return [{k: v for k, v in r.items() if k != "seconds"} for r in metrics.read(folder.metrics)]


def test_a_run_writes_its_folder(tiny):
    loop = run.begin(tiny)
    assert loop.run()
    text = loop.sample()
    folder = loop.folder
    assert folder.path.name == "tiny-1"
    assert tomllib.loads(folder.config.read_text())["training"]["workers"] == 2
    assert folder.loss_curve.read_bytes().startswith(b"\x89PNG")
    assert folder.sample.read_text() == text + "\n"
    assert text.startswith("The ")
    records = metrics.read(folder.metrics)
    assert [r["step"] for r in records if "loss" in r] == list(range(1, 11))
    assert [r["step"] for r in records if "held_out" in r] == [5, 10]
    assert [p.stem for p in state.states(folder.states)] == ["step-00000010", "step-00000005"]
    assert not list(folder.path.rglob("*.tmp"))
    assert run.begin(tiny).folder.path.name == "tiny-2"


def test_ten_steps_equal_five_then_a_kill_then_five(tiny, tmp_path):
    whole = run.begin(tiny.updated({"name": "whole"}))
    whole.run()

    (tmp_path / "c.toml").write_text(tiny.updated({"name": "killed"}).to_toml())
    program = f"""
import os, signal
from llmlab.train import config, run
from llmlab.train.trainer import Trainer

train_step = Trainer.train_step
def die_in_step_8(self, batches):
    if self.step == 7:
        self.params.master += 1
        os.kill(os.getpid(), signal.SIGKILL)
    return train_step(self, batches)
Trainer.train_step = die_in_step_8
loop = run.begin(config.read({str(tmp_path / "c.toml")!r}))
loop.run()
"""
    died = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    killed = whole.folder.path.parent / "killed"
    with open(killed / "metrics.jsonl", "ab") as file:  # what a crash may leave behind the saved step
        file.write(b'{"step": 6, "loss": 9.0}\n{"st')
    resumed = run.resume(killed, {})
    assert resumed.trainer.step == 5
    resumed.run()

    arrays, facts = state.load_latest(whole.folder.states)
    arrays_2, facts_2 = state.load_latest(resumed.folder.states)
    assert sorted(arrays) == sorted(arrays_2) == ["master", "optimizer.m", "optimizer.updates", "optimizer.v"]
    assert all((arrays[name] == arrays_2[name]).all() for name in arrays)
    assert (facts["step"], facts["dropout_step"]) == (facts_2["step"], facts_2["dropout_step"]) == (10, 20)
    assert figures(whole.folder) == figures(resumed.folder)
    assert whole.sample() == resumed.sample()


def test_ctrl_c_saves_and_the_run_goes_on_to_the_same_end(tiny):
    whole = run.begin(tiny)
    whole.run()
    stopped = run.begin(tiny)
    train_step = stopped.trainer.train_step

    def interrupted(batches):
        if stopped.trainer.step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return train_step(batches)

    stopped.trainer.train_step = interrupted
    assert not stopped.run()
    assert state.load_latest(stopped.folder.states)[1]["step"] == 3
    resumed = run.resume(stopped.folder.path, {})
    assert resumed.run()
    assert (resumed.trainer.params.master == whole.trainer.params.master).all()
    assert figures(resumed.folder) == figures(whole.folder)


def test_a_second_ctrl_c_stops_at_once():
    with interruptible() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_only_what_leaves_the_run_the_same_run_may_change(tiny):
    loop = run.begin(tiny)
    loop.run()
    path = loop.folder.path
    for changed in ({"C": 16}, {"seed": 9}, {"B": 1}, {"logits_rows": 4}, {"data": ("pydoc",)}):
        with pytest.raises(UserError, match=f"{next(iter(changed))} is .* in this run"):
            run.resume(path, {"steps": 12, **changed})
    with pytest.raises(UserError, match=r"complete at step 10; train longer with --steps N"):
        run.resume(path, {})
    longer = run.resume(path, {"steps": 12, "C": 8})
    assert longer.run()
    assert [r["step"] for r in metrics.read(path / "metrics.jsonl") if "loss" in r] == list(range(1, 13))
    assert tomllib.loads((path / "config.toml").read_text())["training"]["steps"] == 12


def test_a_resumed_run_does_not_need_the_folder_it_began_in(tiny, text, monkeypatch, tmp_path):
    monkeypatch.chdir(text.parent)
    loop = run.begin(tiny.updated({"data": (text.name,)}))
    loop.run()
    monkeypatch.chdir("/")
    assert run.load(loop.folder.path).step == 10


def test_a_full_disk_is_one_clear_line_and_keeps_the_last_state(tiny, monkeypatch):
    loop = run.begin(tiny)
    save_file = state.save_file

    def full(tensors, path):
        if "00000010" in str(path):
            raise OSError(28, "No space left on device")
        save_file(tensors, path)

    monkeypatch.setattr(state, "save_file", full)
    with pytest.raises(UserError, match=r"cannot save step 10: No space left .* --resume"):
        loop.run()
    assert state.load_latest(loop.folder.states)[1]["step"] == 5
    first = run.begin(tiny.updated({"save_every": 10}))
    with pytest.raises(UserError, match=r"cannot save step 10: No space left .*; make room, and begin again"):
        first.run()


def test_a_model_beyond_all_memory_is_one_clear_line(tiny):
    with pytest.raises(UserError, match="not enough memory for this model and batch: try a smaller --B"):
        run.begin(tiny.updated({"B": 10**26}))


@pytest.mark.parametrize("step", [2, 7])
def test_divergence_stops_with_one_clear_line(tiny, step):
    """Which names the earlier states only if there are any: the first is saved at step 5."""
    loop = run.begin(tiny)
    train_step = loop.trainer.train_step

    def diverging(batches):
        reading = train_step(batches)
        return Readback(loss=np.float32("nan"), norm=np.float32(1)) if loop.trainer.step == step else reading

    loop.trainer.train_step = diverging
    states = f"earlier states are in {loop.folder.states}; " if step > 5 else ""
    message = f"loss became nan at step {step}: training diverged; {states}try an --lr below 0.005"
    with pytest.raises(UserError, match=re.escape(message)):
        loop.run()
    assert len(state.states(loop.folder.states)) == (step > 5)


def test_a_skipped_step_is_noted_as_null(tiny):
    loop = run.begin(tiny)
    train_step = loop.trainer.train_step

    def overflowing(batches):
        train_step(batches)
        return Readback(loss=np.float32(1), norm=np.float32("inf"))

    loop.trainer.train_step = overflowing
    loop.run()
    assert {r["norm"] for r in metrics.read(loop.folder.metrics) if "norm" in r} == {None}


def test_a_run_trains_on_token_shards(tiny, text, tmp_path):
    from llmlab.cli.data import main

    main(["write", str(tmp_path / "shards"), "--data", str(text)])
    as_text, as_shards = dataset.load([str(text)]), dataset.load([str(tmp_path / "shards")])
    assert as_shards.baselines() == as_text.baselines()
    loops = [run.begin(tiny.updated({"data": (str(p),)})) for p in (text, tmp_path / "shards")]
    for loop in loops:
        loop.run()
    assert (loops[0].trainer.params.master == loops[1].trainer.params.master).all()


@pytest.mark.gpu
def test_a_gpu_learns_what_a_cpu_learns(tiny):
    ends = {}
    for device in ("cpu", "cuda"):
        loop = run.begin(tiny.updated({"device": device, "workers": 0, "dropout": 0.0}))
        loop.run()
        ends[device] = loop.held_out
    assert ends["cuda"] == pytest.approx(ends["cpu"], rel=1e-3)


@pytest.mark.gpu
def test_a_gpu_run_resumes_bit_for_bit(tiny):
    config = tiny.updated({"device": "cuda", "workers": 0})
    whole = run.begin(config)
    whole.run()
    half = run.begin(config)
    half.run()
    for path in state.states(half.folder.states)[:1]:
        path.unlink()
    resumed = run.resume(half.folder.path, {})
    assert resumed.trainer.step == 5
    resumed.run()
    a, b = (state.load_latest(r.folder.states)[0] for r in (whole, resumed))
    assert all((a[name] == b[name]).all() for name in a)
    assert figures(whole.folder) == figures(resumed.folder)
