"""Saved states: all that a run needs to go on bit for bit, so written that no crash costs the last one.

A state is two files: `step-00000500.safetensors` with the arrays, and `step-00000500.json` with the rest
and the checksum of the arrays. Each is written under a temporary name, flushed to the disk, and renamed;
the JSON comes last. So a state exists when its JSON does, and arrays and JSON can never be of two different
steps.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from llmlab.errors import UserError

FORMAT = 1


def save(
    folder: str | Path, step: int, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any], keep: int
) -> Path:
    """Save arrays and facts (JSON values) as the state of a step, then drop all but the newest `keep` states.

    Returns the path of the JSON. Raises `OSError` when the disk refuses; older states are then untouched.
    """
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    weights, index = folder / f"step-{step:08d}.safetensors", folder / f"step-{step:08d}.json"
    atomically(weights, lambda path: save_file(dict(arrays), path))
    record = {"format": FORMAT, "step": step, "arrays": weights.name, "sha256": digest(weights), **facts}
    atomically(index, lambda path: path.write_text(json.dumps(record, indent=1) + "\n"))
    for old in states(folder)[keep:]:
        old.unlink(missing_ok=True)  # the JSON first: a state without it does not exist
        old.with_suffix(".safetensors").unlink(missing_ok=True)
    return index


def atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` make a temporary file beside `path`, bring it to the disk, and rename it to `path`."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the rename itself is in the folder: bring that to the disk as well
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def states(folder: str | Path) -> list[Path]:
    """The JSON files of the states in a folder, newest step first; temporary files are none."""
    found = [p for p in Path(folder).glob("step-*.json") if re.fullmatch(r"step-\d{8,}\.json", p.name)]
    return sorted(found, key=lambda p: int(p.stem[5:]), reverse=True)


def load(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and facts of one state.

    Raises `UserError` when the state is incomplete, of another format, or does not match its checksum.
    """
    path = Path(path)
    try:
        facts = json.loads(path.read_text())
        weights = path.with_name(facts["arrays"])
        if facts["format"] != FORMAT:
            raise UserError(f"{path}: has format {facts['format']}, this llmlab reads format {FORMAT}")
        if digest(weights) != facts["sha256"]:
            raise UserError(
                f"{weights}: does not match its checksum; the file was damaged after it was written"
            )
        return load_file(weights), facts
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a whole state ({error})") from error


def load_latest(folder: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The newest state that is whole; a damaged one is passed over for the one before it.

    Raises `UserError` when there is none.
    """
    problems = []
    for path in states(folder):
        try:
            return load(path)
        except UserError as error:
            problems.append(str(error))
    raise UserError(problems[0] if problems else f"{folder}: no saved state in this folder")
