"""One fixture runs a test three ways: NumPy text, kernel emulated and checked, kernel on a GPU."""

import gc
import tempfile
from contextlib import nullcontext
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from llmlab import kernels
from llmlab.arrays import to_numpy

FLOATS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


class Backend:
    """Makes arrays where the backend computes, and calls ops so that they run there."""

    def __init__(self, name: str):
        self.name = name

    def array(self, values: np.ndarray, offset: int = 0):
        """The values as a contiguous array that starts `offset` elements past an aligned address."""
        if self.name == "cuda":
            import cupy as xp
        else:
            xp = np
        room = xp.empty(values.size + offset + 64, values.dtype)
        address = room.data.ptr if self.name == "cuda" else room.ctypes.data
        start = -(address // values.itemsize) % (64 // values.itemsize) + offset
        array = room[start : start + values.size].reshape(values.shape)
        array[...] = xp.asarray(values)
        return array

    def __call__(self, function, *args, **kwargs):
        """Run an op on this backend and bring its results to the host."""
        with kernels.emulated("check") if self.name == "emulated" else nullcontext():
            results = function(*args, **kwargs)
        if isinstance(results, tuple):
            return tuple(None if result is None else to_numpy(result) for result in results)
        return to_numpy(results)


@pytest.fixture(params=["numpy", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request) -> Backend:
    return Backend(request.param)


@pytest.fixture
def backend_named() -> type[Backend]:
    """For a test that chooses by itself where it runs."""
    return Backend


@pytest.fixture(params=FLOATS)
def dtype(request) -> np.dtype:
    return np.dtype(FLOATS[request.param])


@pytest.fixture
def gpu_room():
    """For huge arrays: `gpu_room(GiB)` skips the test where the GPU has less free memory.

    One test at a time has such room, in however many processes tests run, and CuPy's pool is empty after it.
    """
    import cupy

    fcntl = pytest.importorskip("fcntl", reason="huge arrays need a lock between processes")
    pool = cupy.get_default_memory_pool()

    def room(GiB: float) -> None:
        pool.free_all_blocks()
        free = cupy.cuda.runtime.memGetInfo()[0] / 2**30
        if free < GiB:
            pytest.skip(f"needs {GiB} GiB of free GPU memory, and {free:.1f} are free")

    with open(Path(tempfile.gettempdir()) / "llmlab-gpu-room.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield room
        gc.collect()
        pool.free_all_blocks()


class Traffic(dict):
    """By each array's name, how often it was read and written over all launches, in units of its size."""

    def __init__(self, profiles):
        self.sizes = {}  # in bytes
        for array in (array for profile in profiles for array in profile.arrays.values()):
            read, written = self.get(array.name, (0, 0))
            self[array.name] = read + array.read / array.size, written + array.written / array.size
            self.sizes[array.name] = array.size


@pytest.fixture
def traffic():
    """Profiles an op's kernels: `traffic(function, ...)["x"]` is (1, 0) where they read x once in all."""

    def traffic(function, *args, **kwargs):
        with kernels.emulated("profile") as profiles:
            function(*args, **kwargs)
        return Traffic(profiles)

    return traffic
