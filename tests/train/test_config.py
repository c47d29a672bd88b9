import argparse
from dataclasses import FrozenInstanceError

import pytest

from llmlab.errors import UserError
from llmlab.train import config, settings
from llmlab.train.config import SECTIONS, SPECS, TITLES, Config


def test_names_are_unique_over_all_sections():
    assert len(SPECS) == sum(len(specs) for specs in SECTIONS.values())


def test_toml_comes_back(tmp_path):
    changed = Config().updated({"lr": 1e-3, "data": ("a.txt", "b"), "prompt": 'a "quoted"\nline', "steps": 7})
    (tmp_path / "c.toml").write_text(changed.to_toml())
    assert config.read(tmp_path / "c.toml") == changed


def test_a_configuration_never_changes():
    with pytest.raises(FrozenInstanceError):
        Config().model.C = 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"C": 130}, r"C = 130 is not divisible by H = 4: .* try C = 132"),
        ({"B": 0}, r"B = 0: must be >= 1"),
        ({"B": 2.0}, r"B = 2\.0: needs a whole number"),
        ({"logits_rows": -1}, r"logits_rows = -1: must be >= 0"),
        ({"logits_rows": 0.5}, r"logits_rows = 0\.5: needs a whole number"),
        ({"L": True}, r"L = True: needs a whole number"),
        ({"lr": float("nan")}, r"lr = nan: must be > 0"),
        ({"lr": float("inf")}, r"lr = inf"),
        ({"lr": "fast"}, r"lr = 'fast': needs a number"),
        ({"dropout": 1.0}, r"dropout = 1\.0: must be >= 0 and < 1"),
        ({"device": "tpu"}, r"device = 'tpu': needs one of auto, cpu, cuda"),
        ({"data": ()}, r"data = \(\): needs one or more strings"),
        ({"data": (1,)}, r"data = \(1,\): needs one or more strings"),
        ({"seed": 2**64}, "seed = 18446744073709551616: must be >= 0 and < 18446744073709551616"),
        ({"clip": float("inf")}, "clip = inf: must be finite .*; 0: no clipping"),
        ({"steps": 10**400}, "steps = 10+: must be finite"),
        ({"eps": 10**400}, "eps = 10+: must be finite"),
        ({"init_std": 10.5}, r"init_std = 10\.5: must be >= 0 and <= 10"),
        ({"lr": 1e40}, r"lr = 1e\+40: must be > 0 and <= 1000"),
        ({"L": 1001}, "L = 1001: must be >= 1 and <= 1000"),
        *(({"name": name}, "name = .*: needs to be the plain name of a folder; --runs says where it lies")
          for name in ("../x", "a/b", "/x", "..", ".", "a\\b", "a\0")),
    ],
)
def test_what_cannot_be_is_one_clear_line(values, message):
    with pytest.raises(UserError, match=message) as caught:
        Config().updated(values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\ndropuot = 0.1", r"unknown key 'dropuot' in \[model\]; did you mean 'dropout'"),
        ("[modle]\nC = 8", r"unknown table \[modle\]; did you mean 'model'"),
        ("C = 8", r"unknown table \[C\]"),
        ("[model]\nC = ", "not valid TOML"),
        ("[model]\nC = '8'", "C = '8': needs a whole number"),
        ("[data]\ndata = 'pydoc'", "needs one or more strings"),
    ],
)
def test_what_a_file_says_wrong_is_one_clear_line(tmp_path, text, message):
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        config.read(tmp_path / "c.toml")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.toml: cannot be read: No such file"):
        config.read(tmp_path / "none.toml")


def test_whole_numbers_do_for_numbers(tmp_path):
    (tmp_path / "c.toml").write_text("[optimizer]\nclip = 1\n")
    assert config.read(tmp_path / "c.toml").optimizer.clip == 1


def test_every_setting_is_a_flag_that_says_what_it_means():
    parser = argparse.ArgumentParser()
    settings.add_arguments(parser, {s: (TITLES[s], specs.values()) for s, specs in SECTIONS.items()})
    text = " ".join(parser.format_help().split())
    for name, spec in SPECS.items():
        assert f"--{name.replace('_', '-')} " in text
        assert " ".join(spec.metadata["help"].split()) in text
    given = vars(parser.parse_args(["--C", "64", "--lr-end", "0.1", "--data", "a", "b"]))
    assert given == {"C": 64, "lr_end": 0.1, "data": ["a", "b"]}
