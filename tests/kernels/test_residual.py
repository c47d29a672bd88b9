"""Residual addition: text, emulated and CUDA kernel give the same bits, for one addition is rounded once."""

import numpy as np
import pytest

from llmlab.ops import residual


def inputs(n, dtype):
    return np.random.default_rng(n).standard_normal((2, n)).astype(dtype)


@pytest.mark.parametrize("n", [1, 7, 8, 31, 1024, 8192, 9001])
@pytest.mark.parametrize("offsets", [(0, 0, 0), (3, 3, 3), (1, 2, 3), (0, 0, 1)], ids=str)
def test_forward(backend, dtype, n, offsets):
    x, branch = inputs(n, dtype)
    y = np.empty_like(x)
    y = backend(residual.forward, *(backend.array(a, at) for a, at in zip((x, branch), offsets)),
                y=backend.array(y, offsets[2]))  # fmt: skip
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, (x.astype(np.float32) + branch.astype(np.float32)).astype(dtype))


def test_shapes_are_kept_and_either_input_may_receive(backend, dtype):
    x, branch = inputs(96, dtype).reshape(2, 2, 3, 16)
    expected = backend(residual.forward, backend.array(x), backend.array(branch))
    assert expected.shape == x.shape
    for place in (0, 1):
        arrays = [backend.array(x), backend.array(branch)]
        np.testing.assert_array_equal(backend(residual.forward, *arrays, y=arrays[place]), expected)


def test_backward_passes_the_gradient_to_both(backend, dtype):
    dy, _ = inputs(33, dtype)
    for d in backend(residual.backward, backend.array(dy)):
        np.testing.assert_array_equal(d, dy)


def test_empty(backend, dtype):
    nothing = backend.array(np.empty((0, 4), dtype))
    assert backend(residual.forward, nothing, nothing).shape == (0, 4)


def test_each_element_is_read_once_and_written_once(traffic):
    x, branch = inputs(10_000, np.float32)
    assert traffic(residual.forward, x, branch) == {"x": (1, 0), "branch": (1, 0), "y": (0, 1)}
