"""What every test shares: the `gpu` and `browser` marks skip where the thing they need is missing."""

import functools
import os
import shutil

import hypothesis
import pytest

# An example may compile a kernel, and fixtures hold what no example changes: backends, dtypes.
hypothesis.settings.register_profile(
    "llmlab", deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
hypothesis.settings.load_profile("llmlab")

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


@pytest.fixture(scope="session")
def spin():
    """`spin(seconds)` keeps the GPU busy, behind what its current stream has to do already."""
    import cupy
    import numpy as np

    kernel = cupy.RawKernel(r"""extern "C" __global__ void spin(long long ns) {
        long long start, now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
        do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - start < ns);
    }""", "spin")

    def spin(seconds: float) -> None:
        kernel((1,), (1,), (np.int64(seconds * 1e9),))

    spin(0)  # compiles
    return spin


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not cuda_available():
        pytest.skip("no CUDA device (or no CuPy)")
    if item.get_closest_marker("browser") and not chromium():
        pytest.skip("no Chromium")
