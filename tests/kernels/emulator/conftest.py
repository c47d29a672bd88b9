"""Modules that several tests share are compiled once."""

import functools
from pathlib import Path

import pytest

from llmlab.kernels import emulator

HERE = Path(__file__).parent


@functools.cache
def _compiled(file: str, mode: str, expressions: tuple[str, ...]) -> emulator.Module:
    return emulator.Module((HERE / file).read_text(), name_expressions=expressions, mode=mode, filename=file)


@pytest.fixture(scope="session")
def compiled():
    """A function that compiles a file of this folder: ``compiled("faults.cu", "check", "f<float>")``."""
    return lambda file, mode, *expressions: _compiled(file, mode, expressions)
