"""What every test shares: the `gpu` and `browser` marks skip where the thing they need is missing."""

import functools
import os
import shutil

import pytest

# One BLAS thread each, so that test processes do not fight over the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")


@functools.cache
def cuda_available() -> bool:
    """Is there a CuPy that sees a CUDA device?"""
    try:
        import cupy
    except ImportError:
        return False
    return cupy.cuda.is_available()


@functools.cache
def chromium() -> str | None:
    """The path of a Chromium or Chrome, if there is one."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not cuda_available():
        pytest.skip("no CUDA device (or no CuPy)")
    if item.get_closest_marker("browser") and not chromium():
        pytest.skip("no Chromium")
