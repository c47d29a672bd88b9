"""A tiny run: a text of its own, a model of a few hundred numbers."""

import pytest

from llmlab.train.config import Config


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "tiny.txt"
    path.write_text("".join(f"{i} bottles of beer on the wall, {i * i % 97} left. " for i in range(60)))
    return path


@pytest.fixture
def tiny(tmp_path, text):
    """Ten steps, with all that could make a resumed run differ: dropout, two workers, micro-batches."""
    return Config().updated(
        {
            "data": (str(text),),
            "runs": str(tmp_path / "runs"),
            "device": "cpu",
            "precision": "fp32",
            "workers": 2,
            "L": 1,
            "H": 2,
            "C": 8,
            "T": 8,
            "B": 2,
            "accumulate": 2,
            "dropout": 0.1,
            "steps": 10,
            "eval_every": 5,
            "save_every": 5,
            "sample": 4,
        }
    )
