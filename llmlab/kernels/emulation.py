"""Whether, and how strictly, kernels run on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MODES = ("fast", "check", "profile")

_mode: str | None = None
_profiles: list = []


@contextmanager
def emulated(mode: str = "fast") -> Iterator[list]:
    """Send NumPy arrays through the CUDA kernels, run thread by thread on the CPU, not the NumPy text.

    Args:
        mode: ``"fast"`` computes; ``"check"`` also watches every access and raises at out-of-bounds, races,
            missing barriers, uninitialised reads and their kin; ``"profile"`` counts traffic.

    Yields:
        A list that receives one profile for each launch in mode ``"profile"``; it stays empty in the others.

    Raises:
        ValueError: for an unknown mode.

    The setting holds for the whole process, threads included, until the block is left.

    >>> import numpy as np
    >>> from llmlab import kernels
    >>> add_one = kernels.RawModule(code='''
    ... extern "C" __global__ void add_one(float* y, const float* x) {
    ...   y[threadIdx.x] = x[threadIdx.x] + 1.0f;
    ... }
    ... ''').get_function("add_one")
    >>> y = np.empty(4, np.float32)
    >>> with kernels.emulated("check"):
    ...     add_one((1,), (4,), (y, np.arange(4, dtype=np.float32)))
    >>> y
    array([1., 2., 3., 4.], dtype=float32)
    """
    global _mode, _profiles
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(map(repr, MODES))}; got {mode!r}")
    outer = _mode, _profiles
    _mode, _profiles = mode, []
    try:
        yield _profiles
    finally:
        _mode, _profiles = outer


def active() -> bool:
    """Whether ops send NumPy arrays to the kernels at present."""
    return _mode is not None


def mode() -> str:
    """How a kernel launched on NumPy arrays runs at present."""
    return _mode or "fast"


def record(profile: object) -> None:
    """Keep a launch's profile for the enclosing ``emulated("profile")`` block."""
    if profile is not None:
        _profiles.append(profile)
