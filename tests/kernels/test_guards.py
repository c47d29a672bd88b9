"""What launchers ask of arrays."""

import numpy as np
import pytest

from llmlab.kernels import guards


def test_only_views_are_copied():
    x = np.arange(12.0).reshape(3, 4)
    assert guards.contiguous(None) is None
    assert guards.contiguous(x) is x
    for view in (x.T, x[:, ::2], x[::-1], np.broadcast_to(x[0], (3, 4))):
        copy = guards.contiguous(view)
        assert copy.flags.c_contiguous
        np.testing.assert_array_equal(copy, view)


def test_a_result_is_the_buffer_given_or_a_new_one():
    x = np.zeros((2, 3), np.float32)
    assert guards.result("y", x, (2, 3), np.dtype(np.float32), like=x) is x
    new = guards.result("y", None, (4,), np.dtype(np.float16), like=x)
    assert (new.shape, new.dtype) == ((4,), np.float16)


@pytest.mark.parametrize(
    ("buffer", "error", "message"),
    [
        (np.zeros((2, 3)), TypeError, "y is a buffer of float64; this result is float32"),
        (np.zeros((3, 2), np.float32), ValueError, r"y is a buffer of shape \(3, 2\); this result has shape"),
        (np.zeros((3, 2), np.float32).T, ValueError, "y is a view with strides"),
    ],
)
def test_a_buffer_that_does_not_fit_is_refused(buffer, error, message):
    with pytest.raises(error, match=message):
        guards.result("y", buffer, (2, 3), np.dtype(np.float32), like=buffer)


@pytest.mark.parametrize(
    ("columns", "offset", "whole"), [(4, 0, True), (8, 4, True), (4, 1, False), (6, 0, False), (5, 4, False)]
)
def test_packs(columns, offset, whole):
    room = np.zeros(64, np.float32)
    start = -(room.ctypes.data // 4) % 4  # the first element on a 16-byte boundary
    assert guards.packs(columns, room[start:], None, room[start + offset :]) is whole
