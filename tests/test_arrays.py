"""Dtypes by name, and scratch that is lent, taken back, and never shared."""

import threading

import numpy as np
import pytest

from llmlab import arrays
from llmlab.arrays import (
    accumulation_dtype,
    bfloat16,
    dtype,
    float16,
    float32,
    float64,
    scratch,
    scratch_frame,
)


def test_dtypes_by_name():
    for d in (float64, float32, float16, bfloat16):
        assert dtype(d.name) == dtype(d) == d
    for wrong in ("float8", "int32", "double precision"):
        with pytest.raises(ValueError, match=f"dtype is '{wrong}', needs to be one of float64"):
            dtype(wrong)
    for wrong in (None, 3):
        with pytest.raises(ValueError, match=f"dtype is {wrong}, needs"):
            dtype(wrong)


def test_sums_are_kept_in_float32_or_better():
    assert [accumulation_dtype(d) for d in (float64, float32, float16, bfloat16)] == [float64, *[float32] * 3]


def overlap(a, b):
    return np.shares_memory(a, b)


def test_scratch_is_lent_again_but_never_twice():
    like = np.zeros(1)
    for _ in range(2):  # the second round has all the memory that the first asked for
        with scratch_frame():
            a, b = scratch((100,), float32, like), scratch((100,), float32, like)
            with scratch_frame():
                c = scratch((100,), float32, like)
            d = scratch((100,), float32, like)
            assert not overlap(a, b)
            assert not overlap(b, c)
            assert not overlap(b, d)
    assert overlap(c, d)
    assert all(x.ctypes.data % 64 == a.ctypes.data % 64 for x in (b, d))


def test_scratch_outside_a_frame_is_an_ordinary_array():
    a, b = scratch((3,), float64, np.zeros(1)), scratch((3,), float64, np.zeros(1))
    assert a.base is None
    assert not overlap(a, b)


def test_a_frame_ends_with_an_error_too():
    with scratch_frame():
        scratch((10,), float64, np.zeros(1))

    def breaks():
        with scratch_frame():
            scratch((10_000,), float64, np.zeros(1))
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        breaks()
    with scratch_frame():
        a = scratch((10,), float64, np.zeros(1))
        b = scratch((10,), float64, np.zeros(1))
        assert not overlap(a, b)


def test_threads_have_scratch_of_their_own():
    with scratch_frame():
        scratch((1000,), float64, np.zeros(1))
    mine = []

    def work():
        for _ in range(2):
            with scratch_frame():
                mine.append(scratch((1000,), float64, np.zeros(1)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with scratch_frame():
        assert not overlap(scratch((1000,), float64, np.zeros(1)), mine[-1])


def test_numpy_is_recognised_without_cupy(monkeypatch):
    assert arrays.namespace(np.zeros(1)) is np
    assert not arrays.is_cupy(np.zeros(1))
    x = np.zeros(1)
    assert arrays.to_numpy(x) is x
