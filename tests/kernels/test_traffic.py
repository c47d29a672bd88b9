"""What an op moves between memory and its kernels: each large array as often as it must be, and no other.

gelu, softmax, residual, layernorm and adamw say it in tests of their own.
"""

import ml_dtypes
import numpy as np
import pytest

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
    "cross_entropy forward_backward": (
        lambda: (cross_entropy.forward_backward, logits_and_targets(64)),
        {"logits": READ, "dlogits": WRITTEN},
    ),
    "cross_entropy forward_backward, ragged": (  # a row is not kept in shared memory, but read again
        lambda: (cross_entropy.forward_backward, logits_and_targets(63)),
        {"logits": (2 + 1 / 63, 0), "dlogits": WRITTEN},
    ),
}


def check(moved, expected):
    """The arrays expected move as much as expected; each of the others is small beside the largest."""
    assert {name: moved[name] for name in expected} == {n: pytest.approx(v) for n, v in expected.items()}
    others = {name: size for name, size in moved.sizes.items() if name not in expected}
    assert all(size <= max(moved.sizes.values()) / 4 for size in others.values()), others


@pytest.mark.parametrize("case", CASES)
def test_large_arrays_move_as_often_as_they_must(case, traffic):
    make, expected = CASES[case]
    function, arguments = make()
    check(traffic(function, *arguments), expected)


def test_attention_moves_rows_and_nothing_of_size_T_by_T(traffic):
    """A block reads its own rows once, and of the other side what its rows see: nobody reads the future."""
    T = 130  # three blocks: two whole, one of two rows
    qkv, dy = values(1, T, 3 * H * D, dtype=ml_dtypes.bfloat16), values(1, T, H * D, dtype=ml_dtypes.bfloat16)
    assert attention_launcher.chosen(qkv, H) == "wgmma"
    first = range(0, T, ROWS)
    keys = sum(min(i + ROWS, T) for i in first) / T  # before a block's end, of all keys
    queries = sum(T - i for i in first) / T  # from a block's beginning on, of all queries

    forward = traffic(attention.forward, qkv, H)
    check(forward, {"qkv": ((1 + 2 * keys) / 3, 0), "y": WRITTEN})
    backward = traffic(attention.backward, dy, qkv, *attention.forward.text(qkv, H), H)
    by_queries, by_keys = (1 + 2 * keys) / 3, (2 + queries) / 3  # a launch for dq, and one for dk and dv
    expected = {"dy": (1 + queries, 0), "y": READ, "qkv": (by_queries + by_keys, 0), "dqkv": WRITTEN}
    check(backward, expected)
    of_rows = {"lse": 4 * H * T, "statistics": 8 * H * ROWS * guards.ceil_divide(T, ROWS)}
    for name, size in (forward.sizes | backward.sizes).items():
        assert size <= of_rows.get(name, qkv.nbytes) < 2 * H * T * T
