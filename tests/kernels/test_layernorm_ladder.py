"""The ladder of the chapter on LayerNorm: each rung against the text in float64, and what it moves."""

import numpy as np
import pytest

from llmlab.kernels import layernorm_ladder as ladder
from llmlab.ops import layernorm

# Of the largest value: one rounding in the storage dtype, and the order of a float32 sum.
TOLERANCE = {"float32": 5e-6, "bfloat16": 2**-8, "float16": 2**-11}
SUMS = 5e-6

FORWARD = [ladder.thread_forward, ladder.warp_forward, ladder.register_forward]
BACKWARD = [ladder.separate_backward, ladder.fused_backward]


# The rungs are kernels only: they have no NumPy text of their own.
on_kernels = pytest.mark.parametrize(
    "backend", ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True
)


def inputs(shape, dtype):
    rng = np.random.default_rng(0)
    shapes = (shape, shape, shape[-1:], shape[-1:])
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def close(result, reference, tolerance):
    error = np.abs(result.astype(np.float64) - reference).max()
    assert error <= tolerance * np.abs(reference).max()


@on_kernels
@pytest.mark.parametrize("shape", [(5, 64), (70, 72), (9, 768)], ids=str)
@pytest.mark.parametrize("rung", FORWARD, ids=lambda rung: rung.__name__)
def test_forward(backend, rung, shape, dtype):
    x, _, weight, bias = inputs(shape, dtype)
    expected = layernorm.forward.text(*(a.astype(np.float64) for a in (x, weight, bias)))
    results = backend(rung, *map(backend.array, (x, weight, bias)))
    for result, right, tolerance in zip(results, expected, (TOLERANCE[dtype.name], SUMS, SUMS)):
        close(result, right, tolerance)


@on_kernels
@pytest.mark.parametrize("shape", [(5, 64), (70, 72), (9, 768)], ids=str)
@pytest.mark.parametrize("rung", BACKWARD, ids=lambda rung: rung.__name__)
def test_backward(backend, rung, shape, dtype):
    x, dy, weight, bias = inputs(shape, dtype)
    wide = [a.astype(np.float64) for a in (dy, x, weight)]
    _, mean, rstd = layernorm.forward.text(*wide[1:], bias.astype(np.float64))
    statistics = mean.astype(np.float32), rstd.astype(np.float32)
    results = backend(rung, *map(backend.array, (dy, x, weight, *statistics)))
    expected = layernorm.backward.text(*wide, mean, rstd)
    for result, right, tolerance in zip(results, expected, (TOLERANCE[dtype.name], SUMS, SUMS)):
        close(result, right, tolerance)


def test_what_each_rung_reads(traffic, dtype):
    x, dy, weight, bias = inputs((64, 768), dtype)
    mean = rstd = np.ones(64, np.float32)
    read = {rung.__name__: traffic(rung, x, weight, bias)["x"][0] for rung in FORWARD}
    assert read == {"thread_forward": 3, "warp_forward": 3, "register_forward": 1}
    moved = traffic(ladder.fused_backward, dy, x, weight, mean, rstd)
    assert moved["dy"] == moved["x"] == (1, 0) and moved["dx"] == (0, 1)


def test_widths_that_end_inside_a_pack_are_refused():
    x, _, weight, bias = inputs((4, 66), np.float32)
    with pytest.raises(ValueError, match="x has 66 columns of float32; register_forward needs"):
        ladder.register_forward(x, weight, bias)
