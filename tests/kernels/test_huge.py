"""More than 2³¹ elements: the last rows, past what an int32 counts, give what they give alone.

All rows before are zeros or ignored, and add nothing to gradients of parameters. attention, cross_entropy,
embedding, layernorm, softmax and adamw have such a test of their own.
"""

import math

import numpy as np
import pytest

from llmlab.kernels import linear as linear_launcher
from llmlab.kernels.column_sum import column_sum
from llmlab.ops import dropout, gelu, linear, linear_cross_entropy, residual, residual_layernorm

pytestmark = pytest.mark.gpu

HUGE = 2**31 + 4096
C, LAST = 768, 5


def values(*shape, whole=False):
    """Random numbers in float16; `whole` ones are -1, 0 and 1, of which every sum here is exact."""
    rng = np.random.default_rng(math.prod(shape))
    return (rng.integers(-1, 2, shape) if whole else rng.standard_normal(shape)).astype(np.float16)


def behind_zeros(xp, rows, *last):
    """Arrays of so many rows, of which the last are given."""
    arrays = [xp.zeros((rows, *a.shape[1:]), a.dtype) for a in last]
    for array, a in zip(arrays, last, strict=True):
        array[-len(a) :] = xp.asarray(a)
    return arrays


def assert_same(xp, whole, alone, exactly=True):
    """The last rows of results by row; all of a sum, which in another order differs in its last bits.

    Not exactly: products of another height, for which cuBLAS may add up in another order.
    """
    for name, b in alone.items():
        a = whole[name][-len(b) :]
        tolerance = (0 if b.ndim > 1 else 1e-5) if exactly else 2**-10
        difference = xp.abs(a.astype(np.float32) - b.astype(np.float32)).max()
        assert float(difference) <= tolerance * float(xp.abs(b).max()), name
        assert b.any(), name


def run_gelu(xp, rows):
    bias = xp.asarray(values(C))
    x, dy = behind_zeros(xp, rows, *values(2, LAST, C))
    dx, dbias = gelu.backward(dy, x, bias, dx=dy)
    return {"y": gelu.forward(x, bias, y=x), "dx": dx, "dbias": dbias}


def run_residual(xp, rows):
    x, branch = behind_zeros(xp, rows, *values(2, LAST, C))
    return {"y": residual.forward(x, branch, y=x)}


def run_residual_layernorm(xp, rows):
    weight, zero = xp.ones(C, np.float16), xp.zeros(C, np.float16)
    x, branch = behind_zeros(xp, rows, *values(2, LAST, C))
    r, y, mean, rstd = residual_layernorm.forward(x, branch, weight, zero, zero, r=branch)
    names = "dx", "dbranch", "dweight", "dbias", "dbranch_bias"
    results = {"r": r[-LAST:].copy(), "y": y[-LAST:].copy()}  # before y, as a gradient, is written over
    gradients = residual_layernorm.backward(x, y, r, weight, mean, rstd, zero, dx=y)
    return results | dict(zip(names, gradients, strict=True))


def run_add_bias(xp, rows):
    (y,) = behind_zeros(xp, rows, values(LAST, C))
    dbias = xp.zeros(C, np.float32)
    column_sum(dbias, y)
    linear_launcher._add_bias(y, xp.asarray(values(C)))
    return {"y": y, "dbias": dbias}


def run_linear(xp, rows):
    K = 8
    x, dy = behind_zeros(xp, rows, values(LAST, K, whole=True), values(LAST, C, whole=True))
    weight, bias = xp.asarray(values(C, K, whole=True)), xp.asarray(values(C, whole=True))
    names = "dx", "dweight", "dbias"
    results = dict(zip(names, linear.backward(dy, x, weight, bias), strict=True))
    return results | {"y": linear.forward(x, weight, bias, y=dy)}


RUNS = {  # GiB needed, at 4 an array
    "gelu": (run_gelu, 10),
    "residual": (run_residual, 10),
    "residual_layernorm": (run_residual_layernorm, 14),
    "add_bias and column_sum": (run_add_bias, 6),
    "linear": (run_linear, 6),
}


@pytest.mark.parametrize("op", RUNS)
def test_the_last_rows(op, gpu_room):
    import cupy

    run, GiB = RUNS[op]
    gpu_room(GiB)
    rows = HUGE // C + LAST
    assert_same(cupy, run(cupy, rows), run(cupy, LAST))


def run_dropout(xp, n, k):
    """The mask of an element depends on its place: alone, the last k elements say where they stand."""
    p_seed_step_layer = 0.3, 2**40 + 7, 3, 1
    x = xp.ones(n, np.float16)
    alone = dropout.forward(x[-k:].copy(), *p_seed_step_layer, n - k)
    return dropout.forward(x, *p_seed_step_layer, y=x)[-k:], alone


def test_the_mask_of_the_last_elements(gpu_room):
    import cupy

    gpu_room(6)
    last, alone = run_dropout(cupy, HUGE + 1, 3001)
    assert (last == alone).all()
    assert 0.6 < float((alone > 0).mean()) < 0.8


def run_head(xp, N, width, V, rows):
    weight = xp.asarray(values(V, width))
    (x,) = behind_zeros(xp, N, values(LAST, width))
    targets = xp.full(N, -100)
    targets[-LAST:] = xp.arange(LAST)
    logits = xp.empty((rows, V), np.float16)
    loss, dx, dweight, _ = linear_cross_entropy.forward_backward(x, weight, targets, dx=x, logits=logits)
    return {"loss": loss.reshape(1), "dx": dx, "dweight": dweight}


@pytest.mark.parametrize(
    ("N", "width", "V", "rows"),
    [(HUGE // C, C, 64, 65536), (HUGE // 50304 + LAST, 16, 50304, HUGE // 50304 + LAST)],
    ids=["x", "logits"],
)
def test_head_with_so_many_numbers_in(gpu_room, N, width, V, rows):
    import cupy

    gpu_room(6)
    alone = run_head(cupy, LAST, width, V, LAST)
    assert_same(cupy, run_head(cupy, N, width, V, rows), alone, exactly=False)
