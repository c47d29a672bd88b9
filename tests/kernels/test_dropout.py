"""Dropout's kernel draws the same mask as the text."""

import numpy as np
import pytest

from llmlab.ops import dropout


@pytest.mark.parametrize(
    ("n", "offset", "start"), [(1, 0, 0), (1003, 0, 0), (1000, 3, 0), (64, 8, 1), (0, 0, 0)]
)
def test_the_mask_of_the_text(backend, dtype, n, offset, start):
    x = np.random.default_rng(0).standard_normal(n).astype(dtype)
    expected = dropout.forward.text(x, 0.3, 12345678901, 7, 3, offset)
    for function, step in (dropout.forward, 7), (dropout.backward, backend.array(np.array([7]))):
        y = backend(function, backend.array(x, start), 0.3, 12345678901, step, 3, offset)
        np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))


def test_in_place_and_without_dropping(backend, dtype):
    x = np.arange(100).astype(dtype)
    place = backend.array(x)
    assert (backend(dropout.forward, place, 0.0, 1, 0, 0, y=place) == x).all()
    y = backend(dropout.forward, backend.array(x), 0.5, 1, 0, 0)
    assert (backend(dropout.forward, place, 0.5, 1, 0, 0, y=place) == y).all()
