"""The same input gives the same bits: sums over many blocks come in an order that the launch alone decides.

gelu, layernorm, embedding and attention say so of themselves.
"""

import numpy as np
import pytest

from llmlab.ops import dropout, linear, linear_cross_entropy, residual_layernorm, softmax


def norm(at, x, dy, weight):
    bias = at(np.linspace(-1, 1, x.shape[1]).astype(x.dtype))
    r, y, mean, rstd = residual_layernorm.forward(at(x), at(dy), at(weight), bias, bias)
    return r, y, mean, rstd, *residual_layernorm.backward(at(x), at(dy), r, at(weight), mean, rstd, bias)


def head(at, x, dy, weight):
    V = 2 * x.shape[1] - 9
    weights, targets = np.outer(np.cos(np.arange(V)), weight).astype(x.dtype), np.arange(len(x)) % V
    logits = at(np.zeros((len(x) // 3, V), x.dtype))  # four chunks, the last a ragged one
    return linear_cross_entropy.forward_backward(at(x), at(weights), at(targets), logits=logits)


def layer(at, x, dy, weight):
    square = np.outer(np.cos(np.arange(len(weight))), weight).astype(x.dtype)
    y = linear.forward(at(x), at(square), at(weight))
    return y, *linear.backward(at(dy), at(x), at(square), at(weight))


def soft(at, x, dy, weight):
    y = softmax.forward(at(x))
    return y, softmax.backward(at(dy), y)


def drop(at, x, dy, weight):
    attributes = 0.3, 2**40 + 7, at(np.array([5])), 1
    return dropout.forward(at(x), *attributes), dropout.backward(at(dy), *attributes)


@pytest.mark.parametrize("results", [soft, layer, drop, norm, head], ids=lambda f: f.__name__)
def test_same_input_same_bits(backend, dtype, results):
    N, C = (4001, 1600) if backend.name == "cuda" else (70, 40)
    x, dy = np.random.default_rng(0).standard_normal((2, N, C)).astype(dtype)
    runs = [backend(results, backend.array, x, dy, x[0]) for _ in range(2)]
    for first, second in zip(*runs, strict=True):
        np.testing.assert_array_equal(first, second)
        assert first.any()  # zeros would be the same too
