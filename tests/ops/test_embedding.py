"""Embedding: tokens that repeat, and tokens that do not exist."""

import numpy as np
import pytest

from llmlab.arrays import bfloat16, float16, float32
from llmlab.ops import embedding


@pytest.mark.parametrize("dtype", [float32, bfloat16, float16], ids=lambda d: d.name)
def test_a_token_that_repeats_collects_every_gradient(dtype):
    tokens = np.full((1, 1000), 3)
    wte, wpe = np.zeros((8, 5), dtype), np.zeros((1000, 5), dtype)
    dwte, dwpe = embedding.backward(np.ones((1, 1000, 5), dtype), tokens, wte, wpe)
    expected = np.zeros((8, 5))
    expected[3] = 1000
    assert dwte.dtype == dwpe.dtype == float32
    np.testing.assert_array_equal(dwte, expected)
    np.testing.assert_array_equal(dwpe, 1)


@pytest.mark.parametrize(("token", "place"), [(8, (0, 1)), (-1, (1, 2))])
def test_a_token_outside_the_vocabulary_is_an_error(token, place):
    tokens = np.zeros((2, 3), np.int64)
    tokens[place] = token
    wte, wpe = np.zeros((8, 5), float32), np.zeros((3, 5), float32)
    message = rf"tokens\[{place[0]}, {place[1]}\] is {token}, needs to lie in \[0, 8\)"
    with pytest.raises(ValueError, match=message):
        embedding.forward(tokens, wte, wpe)
    with pytest.raises(ValueError, match=message):
        embedding.backward(np.zeros((2, 3, 5), float32), tokens, wte, wpe)


def test_tokens_of_any_integer_dtype():
    wte, wpe = np.arange(300.0)[:, None], np.zeros((2, 1))
    for dtype in (np.uint8, np.uint16, np.int32, np.int64):
        assert embedding.forward(np.array([[255, 7]], dtype), wte, wpe)[0, :, 0].tolist() == [255, 7]
        dwte, _ = embedding.backward(np.ones((1, 2, 1)), np.array([[0, 255]], dtype), wte, wpe)
        assert np.flatnonzero(dwte).tolist() == [0, 255]
    with pytest.raises(TypeError, match="tokens has dtype float64, needs integers"):
        embedding.forward(np.array([[1.0, 2.0]]), wte, wpe)


def test_a_sequence_longer_than_the_positions_is_an_error():
    with pytest.raises(ValueError, match="sequences of 3, but wpe has only 2 positions"):
        embedding.forward(np.zeros((1, 3), int), np.zeros((8, 5)), np.zeros((2, 5)))
