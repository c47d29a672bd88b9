"""A run's folder: `config.toml`, `metrics.jsonl`, `loss.png`, `sample.txt`, and `states/`."""

import itertools
from pathlib import Path

from llmlab.errors import UserError
from llmlab.train.state import atomically


class RunFolder:
    """The paths of one run."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.loss_curve = self.path / "loss.png"
        self.sample = self.path / "sample.txt"
        self.states = self.path / "states"

    def write(self, path: Path, text: str) -> None:
        """Write one of the folder's text files, whole or not at all."""
        atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def create(runs: str, name: str, corpus: str) -> RunFolder:
    """Make a new run folder: `runs/<name>`, or `runs/<corpus>-<n>` with the first free number.

    Raises `UserError` when it exists already or cannot be made.
    """
    names = [name] if name else (f"{corpus}-{n}" for n in itertools.count(1))
    for candidate in names:
        path = Path(runs) / candidate
        try:
            path.mkdir(parents=True)
            return RunFolder(path)
        except FileExistsError:
            if name or Path(runs).is_file():
                raise UserError(
                    f"{path}: exists already; continue it with --resume {path}, or choose another --name"
                ) from None
        except OSError as error:
            raise UserError(
                f"{path}: cannot make this folder: {error.strerror}; choose another --runs"
            ) from error
    raise AssertionError("unreachable: the numbers do not end")


def existing(path: str | Path) -> RunFolder:
    """The folder of a run that was begun before.

    Raises `UserError` when there is no run in it.
    """
    folder = RunFolder(path)
    if not folder.config.is_file():
        raise UserError(
            f"{path}: not the folder of a run (it has no config.toml); runs are under runs/ by default"
        )
    return folder
