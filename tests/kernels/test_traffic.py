"""What an op moves between memory and its kernels: each large array as often as it must be, and no other.

Where one launch is the whole op (gelu, softmax, residual, layernorm, adamw), the op's own test says it.
"""

import ml_dtypes
import numpy as np
import pytest

from llmlab import kernels
from llmlab.kernels import attention as attention_launcher
from llmlab.kernels import guards
from llmlab.kernels.column_sum import column_sum
from llmlab.ops import attention, cross_entropy, dropout, embedding, linear, residual_layernorm

READ, WRITTEN, ADDED_TO = (1, 0), (0, 1), (1, 1)

N, C = 12, 64
B, T, V = 2, 9, 7  # of the embedding
H, D, ROWS = 2, 40, 64  # of attention: a block owns 64 rows


def values(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def norm_forward():
    x, weight = values(N, C), values(C)
    return residual_layernorm.forward, (x, x.copy(), weight, weight.copy(), weight.copy())


def norm_backward():
    function, arguments = norm_forward()
    r, _, mean, rstd = function.text(*arguments)
    return residual_layernorm.backward, (values(N, C), values(N, C), r, arguments[2], mean, rstd, values(C))


def embed(*before):
    tokens = np.random.default_rng(0).integers(0, V, (B, T))
    return *before, tokens, values(V, C), values(T, C)


def logits_and_targets(width):
    return values(6, width), np.arange(6)


def dlogits(width):
    logits, targets = logits_and_targets(width)
    _, lse = cross_entropy.forward.text(logits, targets)
    return cross_entropy.backward, (1.0, logits, targets, lse)


ROWS_OF_LOSS = 1 + 1 / 64  # the row, and its target once more

# What is called with what -> (read, written) of every large array, in units of its size, over all launches.
CASES = {
    "residual_layernorm forward": (
        norm_forward,
        {"x": READ, "branch": READ, "r": WRITTEN, "y": WRITTEN},
    ),
    "residual_layernorm backward": (
        norm_backward,
        {"dr": READ, "dy": READ, "r": READ, "dx": WRITTEN},
    ),
    "dropout": (
        lambda: (dropout.forward, (values(1003), 0.3, 1, 2, 3)),
        {"x": READ, "y": WRITTEN},  # and no mask
    ),
    "embedding forward": (  # a row of each table for each place
        lambda: (embedding.forward, embed()),
        {"wte": (B * T / V, 0), "wpe": (B, 0), "x": WRITTEN},
    ),
    "embedding backward": (  # the gradient once for each table
        lambda: (embedding.backward, embed(values(B, T, C))),
        {"dx": (2, 0), "dwte": ADDED_TO, "dwpe": ADDED_TO},
    ),
    "linear: bias": (  # beside the product
        lambda: (linear.forward, (values(N, 8), values(C, 8), values(C))),
        {"y": ADDED_TO},
    ),
    "linear: gradient of the bias": (
        lambda: (column_sum, (np.zeros(C, np.float32), values(400, C))),
        {"x": READ},
    ),
    "cross_entropy forward": (
        lambda: (cross_entropy.forward, logits_and_targets(64)),
        {"logits": (ROWS_OF_LOSS, 0)},
    ),
    "cross_entropy backward": (lambda: dlogits(64), {"logits": READ, "dlogits": WRITTEN}),
    "cross_entropy forward, ragged": (
        lambda: (cross_entropy.forward, logits_and_targets(63)),
        {"logits": (1 + 1 / 63, 0)},
    ),
    "cross_entropy backward, ragged": (lambda: dlogits(63), {"logits": READ, "dlogits": WRITTEN}),
}


def profiled(function, arguments):
    with kernels.emulated("profile") as profiles:
        results = function(*arguments)
    return profiles, results


def check(profiles, expected):
    """The arrays expected move as much as expected; all others together are small beside the largest."""
    moved, size = {}, {}
    for array in (array for profile in profiles for array in profile.arrays.values()):
        read, written = moved.get(array.name, (0, 0))
        moved[array.name] = (read + array.read / array.size, written + array.written / array.size)
        size[array.name] = array.size
    assert {name: moved[name] for name in expected} == {n: pytest.approx(v) for n, v in expected.items()}
    others = {name: nbytes for name, nbytes in size.items() if name not in expected}
    assert all(nbytes <= max(size.values()) / 4 for nbytes in others.values()), others


@pytest.mark.parametrize("case", CASES)
def test_large_arrays_move_as_often_as_they_must(case):
    make, expected = CASES[case]
    profiles, _ = profiled(*make())
    check(profiles, expected)


def test_attention_moves_rows_and_nothing_of_size_T_by_T():
    """A block reads its own rows once, and of the other side what its rows see: nobody reads the future."""
    T = 130  # three blocks: two whole, one of two rows
    qkv, dy = values(1, T, 3 * H * D, dtype=ml_dtypes.bfloat16), values(1, T, H * D, dtype=ml_dtypes.bfloat16)
    assert attention_launcher.chosen(qkv, H) == "wgmma"
    first = range(0, T, ROWS)
    keys = sum(min(i + ROWS, T) for i in first) / T  # before a block's end, of all keys
    queries = sum(T - i for i in first) / T  # from a block's beginning on, of all queries

    profiles, (y, lse) = profiled(attention.forward, (qkv, H))
    check(profiles, {"qkv": ((1 + 2 * keys) / 3, 0), "y": WRITTEN})
    profiles, _ = profiled(attention.backward, (dy, qkv, y, lse, H))
    check(profiles[:1], {"dy": READ, "y": READ, "qkv": ((1 + 2 * keys) / 3, 0), "dqkv": (0, 1 / 3)})
    check(profiles[1:], {"dy": (queries, 0), "qkv": ((queries + 2) / 3, 0), "dqkv": (0, 2 / 3)})
    of_rows = {"lse": 4 * H * T, "statistics": 8 * H * ROWS * guards.ceil_divide(T, ROWS)}
    for array in (array for profile in profiles for array in profile.arrays.values()):
        assert array.size <= of_rows.get(array.name, qkv.nbytes) < 2 * H * T * T
