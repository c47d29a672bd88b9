import os
import signal
import subprocess
import sys
import time

import pytest

from llmlab import cli
from llmlab.errors import UserError

TINY = ["--L", "1", "--H", "2", "--C", "8", "--T", "8", "--B", "2", "--workers", "1", "--device", "cpu"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    return tmp_path


def said(capsys, *words):
    """Exit code, and the lines on stdout and stderr, of `llmlab` with these words."""
    code = cli.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_train_from_start_to_sample(here, capsys):
    code, out, err = said(capsys, "train", "--data", "t.txt", *TINY, "--steps", "5", "--sample", "7")
    assert code == 0
    assert "held-out loss" in out
    assert "to beat: " in out
    for name in ("config.toml", "metrics.jsonl", "loss.png", "sample.txt", "states"):
        assert (here / "runs" / "t-1" / name).exists()
        assert f"runs/t-1/{name}" in out
    assert "loss" in err
    assert "tokens/s" in err

    code, out, _ = said(capsys, "train", "--resume", "runs/t-1", "--steps", "8")
    assert code == 0
    code, out, _ = said(
        capsys, "sample", "runs/t-1", "--prompt", "the ", "--tokens", "3", "--temperature", "0"
    )
    assert code == 0
    assert out.startswith("the ")


def test_flags_go_before_the_file(here, capsys):
    (here / "c.toml").write_text("[training]\nsteps = 3\n[optimizer]\nlr = 0.5\n")
    flags = ["--config", "c.toml", "--lr", "0.25", "--sample", "0", "--data", "t.txt"]
    code, *_ = said(capsys, "train", *TINY, *flags)
    assert code == 0
    text = (here / "runs" / "t-1" / "config.toml").read_text()
    assert "lr = 0.25" in text
    assert "steps = 3" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "unknown command 'nothing'"),
        (["trian"], "did you mean 'train'?"),
        (["train", "--stepz", "3"], "unrecognized arguments: --stepz 3"),
        (["train", "--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["train", "--C", "130"], "C = 130 is not divisible by H = 4"),
        (["train", "--B", "0"], "B = 0: must be >= 1"),
        (["train", "--lr", "nan"], "lr = nan: must be > 0"),
        (["train", "--data", "none.txt"], "none.txt: no such file or folder"),
        (["train", "--data", "empty.txt"], "the corpus is empty"),
        (["train", "--data", "t.txt", "--T", "999999"], "T = 999999 needs at least 1000000 tokens"),
        (["train", "--data", "t.txt", *TINY, "--runs", "t.txt"], "cannot make this folder: Not a directory"),
        (
            ["train", "--data", "t.txt", *TINY, "--runs", "/proc/none"],
            "cannot make this folder: No such file",
        ),
        (["train", "--data", "t.txt", *TINY, "--name", "../x"], "name = '../x': needs to be the plain name"),
        (["train", "--data", "t.txt", *TINY, "--seed", "9" * 30], "9: must be >= 0 and < 18446744073709"),
        (["sample", "runs/none", "--seed", "9" * 30], "9: must be >= 0 and < 18446744073709551616"),
        (["train", "--data", "t.txt", *TINY, "--name", "taken"], "exists already; continue it with --resume"),
        (["train", "--config", "none.toml"], "none.toml: cannot be read: No such file"),
        (["train", "--config", "bad.toml"], "unknown key 'stepps' in [training]; did you mean 'steps'?"),
        (["train", "--resume", "runs/none"], "not the folder of a run"),
        (["train", "--resume", "runs/taken", "--config", "bad.toml"], "leave --config out"),
        (["train", "--resume", "runs/taken", "--model", "gpt2"], "leave --model out"),
        (["train", "--model", "gpt3"], "invalid choice: 'gpt3'"),
        (["train", "--data", "t.txt", *TINY, "--workers", "3"], "workers = 3"),
        (["train", "--data", "t.txt", *TINY, "--prompt", ""], "prompt = ''"),
        (["sample", "runs/none"], "not the folder of a run"),
        (["sample", "runs/none", "--tokens", "0"], "--tokens 0: must be >= 1"),
        (["sample", "runs/none", "--temperature", "-1"], "temperature = -1.0: must be >= 0"),
        (["data", "write", "shards", "--data", "none.txt"], "no such file or folder"),
        (["data", "write", "shards", "--held-out", "1"], "--held-out 1.0: must be > 0 and < 1"),
        (["data", "write", "/proc/none", "--data", "t.txt"], "cannot be written: No such file"),
        (["memory", "--V", "0"], "--V 0: must be >= 1"),
        (["memory", "--logits-rows", "-1"], "logits_rows = -1: must be >= 0"),
        (["memory", "--C", "130"], "C = 130 is not divisible by H = 4"),
        (["data"], "the following arguments are required: list | write"),
    ],
)
def test_bad_input_is_one_clear_line_exit_code_2_and_leaves_nothing(here, capsys, words, message):
    (here / "empty.txt").write_text("\n")
    (here / "bad.toml").write_text("[training]\nstepps = 3\n")
    (here / "runs" / "taken").mkdir(parents=True)
    before = sorted(here.rglob("*"))
    code, out, err = said(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("llmlab: error: ")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(here.rglob("*")) == before


def test_ctrl_c_saves_says_how_to_go_on_and_exits_130(here):
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "llmlab", "train", "--data", "t.txt", *TINY, "--steps", "1000000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    metrics = here / "runs" / "t-1" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "go on with\n  llmlab train --resume runs/t-1" in out
    assert "Traceback" not in err
    (saved,) = [p for p in (here / "runs" / "t-1" / "states").iterdir() if p.suffix == ".json"][-1:]
    assert saved.exists()


@pytest.mark.parametrize("name", ["train", "sample", "data", "memory", "doctor"])
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    assert f"llmlab {name}" in capsys.readouterr().out


def test_without_a_command_the_commands_are_listed(capsys):
    code, out, _ = said(capsys)
    assert code == 0
    for name, command in cli.COMMANDS.items():
        assert name in out
        assert command.help in out


def test_commands_are_imported_only_when_they_are_asked_for():
    program = "import llmlab, llmlab.cli, sys; print(*sorted(m for m in sys.modules if m in {names!r}))"
    heavy = {"numpy", "torch", "cupy", "matplotlib", "safetensors", "pooch", "llmlab.engine"}
    ran = subprocess.run(
        [sys.executable, "-c", program.format(names=heavy)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == []


def test_training_imports_no_optional_package():
    program = (
        "import llmlab.cli.train, sys; print(*(m for m in sys.modules if m in {'torch', 'cupy', 'pooch'}))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_a_missing_extra_is_one_clear_line(capsys, monkeypatch):
    monkeypatch.setitem(cli.COMMANDS, "lab", cli.Command("test_cli_needs", "", extra="book"))
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: missing())
    assert said(capsys, "lab") == (
        2, "", "llmlab: error: `llmlab lab` needs nbformat, not installed here: pip install -e '.[book]'\n"
    )  # fmt: skip


def missing():
    raise ModuleNotFoundError("No module named 'nbformat'", name="nbformat")


def test_a_bug_shows_where_it_is(monkeypatch):
    from llmlab.cli import data

    monkeypatch.setattr(data, "list_corpora", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["data", "list"])


def test_a_reader_that_goes_away_is_no_error():
    ran = subprocess.run(
        f"{sys.executable} -m llmlab data list | true; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in ran.stderr


def test_memory_counts_parameters_and_says_what_the_engine_will_hold(capsys):
    code, out, _ = said(capsys, "memory", "--model", "gpt2")
    assert code == 0
    assert "124,475,904 parameters, 16 x 1024 tokens at once, fp32; in GiB" in out

    from llmlab.engine import Engine
    from llmlab.models import gpt2
    from llmlab.parameters import Parameters

    graph = gpt2.build(gpt2.Config(), 16)
    peaks = [
        Engine(graph, Parameters(graph.parameters), policy).predicted_peak for policy in ("none", "full")
    ]
    _, out, _ = said(capsys, "memory")
    found = next(line for line in out.splitlines() if line.startswith("activations, peak")).split()
    assert [found[2], found[4]] == [f"{peak / 2**30:.3f}" for peak in peaks]


def test_a_published_model_gives_its_sizes_and_rate_and_flags_go_before_it(here, monkeypatch):
    begun = []
    monkeypatch.setattr("llmlab.train.run.begin", lambda config: begun.append(config))
    monkeypatch.setattr("llmlab.cli.train.train", lambda loop: 0)
    assert cli.main(["train", "--model", "gpt2-medium", "--T", "256", "--data", "t.txt"]) == 0
    m, o = begun[0].model, begun[0].optimizer
    assert (m.L, m.H, m.C, m.T, m.init_std, o.lr) == (24, 16, 1024, 256, 0.02, 3e-4)


@pytest.mark.parametrize(("precision", "each"), [("fp32", 16), ("bf16", 18), ("fp16", 18)])
def test_memory_counts_every_byte_of_a_parameter(capsys, precision, each):
    """float32 masters, gradients and two moments: 4 + 4 + 8 bytes; a 16-bit copy adds 2."""
    _, out, _ = said(capsys, "memory", "--model", "gpt2", "--precision", precision)
    rows = dict(line.rsplit(None, 3)[:2] for line in out.split("\n\n")[1].splitlines()[1:])
    stored = sum(float(gib) for name, gib in rows.items() if name not in ("activations, peak", "together"))
    assert stored == pytest.approx(124_475_904 * each / 2**30, abs=2e-3)
    assert float(rows["together"]) == pytest.approx(stored + float(rows["activations, peak"]), abs=2e-3)


def test_memory_says_which_vocabulary_it_counts_and_what_it_does_not(capsys):
    """A published model's own vocabulary here, the bytes of a text in `llmlab train`."""
    _, published, _ = said(capsys, "memory", "--model", "gpt2")
    hint = "(`llmlab train` on text reads bytes: for its memory add --V 256)"
    assert published.startswith(f"vocabulary V = 50,257 {hint}\n124,475,904 parameters")
    _, ours, _ = said(capsys, "memory", "--model", "gpt2", "--V", "256")
    assert ours.startswith("vocabulary V = 256\n86,039,040 parameters")
    for word in ("llmlab allocates", "gradient for each worker", "CUDA", "cuBLAS"):
        assert word in " ".join(ours.split())


def test_memory_columns_stay_apart_whatever_the_size(capsys):
    _, out, _ = said(capsys, "memory", "--B", "99999999999")
    rows = out.split("\n\n")[1].splitlines()
    assert {len(row) for row in rows} == {len(rows[0])}
    assert all(len(row[20:].split()) == 3 for row in rows)


def test_memory_of_logits_by_chunks(capsys):
    """16 x 1024 rows of 50,257 float32 are 3.1 GiB, of which 1,024 rows stay."""
    peaks = []
    for flags in ([], ["--logits-rows", "1024"]):
        _, out, _ = said(capsys, "memory", "--model", "gpt2", "--precision", "fp32", *flags)
        line = next(line for line in out.splitlines() if line.startswith("activations, peak"))
        peaks.append([float(gib) for gib in line.split()[2:]])
    saved = 15 * 1024 * 50304 * 4 / 2**30
    none, selective, full = (whole - chunked for whole, chunked in zip(*peaks, strict=True))
    assert none > 0.9 * saved
    assert selective > 0.9 * saved
    assert full > 0.7 * saved  # the peak is inside of a block, then


def test_user_errors_are_value_errors():
    assert issubclass(UserError, ValueError)


def test_doctor_tells_what_is_here_and_what_more_would_give(capsys, monkeypatch):
    from llmlab.cli import doctor

    monkeypatch.setattr(doctor.arrays, "gpu_available", lambda: False)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("LLMLAB_CXX", "")
    monkeypatch.setattr(doctor, "version", lambda package: "1.2.3" if package == "torch" else "")
    code, out, _ = said(capsys, "doctor")
    assert code == 0
    assert f"{len(os.sched_getaffinity(0))} usable" in out
    assert "--  GPU          not here; with one, `llmlab train` uses it" in out
    assert "--  C++          not here; a compiler (apt install g++" in out
    assert "ok  torch        1.2.3" in out
    monkeypatch.setenv("LLMLAB_CXX", "my-c++ -v")
    assert "ok  C++          my-c++ -v" in said(capsys, "doctor")[1]
