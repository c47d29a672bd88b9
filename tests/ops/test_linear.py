"""The linear layer without a bias, and sums over microbatches."""

import numpy as np

from llmlab import gradcheck
from llmlab.arrays import bfloat16, float32
from llmlab.ops import gelu, linear


def test_no_bias_no_gradient_of_one():
    generator = np.random.default_rng(0)
    arguments = {"x": generator.standard_normal((2, 3, 4)), "weight": generator.standard_normal((5, 4))}
    assert gradcheck.check_op(linear, arguments).error < 1e-6
    dy = generator.standard_normal((2, 3, 5))
    assert linear.backward(dy, arguments["x"], arguments["weight"])[2] is None
    assert gelu.backward(dy, dy)[1] is None


def test_bfloat16_gradients_of_many_rows_are_summed_in_float32():
    ones = np.ones((4096, 3), bfloat16)
    weight, bias = np.ones((3, 3), bfloat16), np.ones(3, bfloat16)
    _, dweight, dbias = linear.backward(ones, ones, weight, bias)
    assert dweight.dtype == dbias.dtype == float32
    np.testing.assert_array_equal(dweight, 4096)
    np.testing.assert_array_equal(dbias, 4096)
    linear.backward(ones, ones, weight, bias, dweight=dweight, dbias=dbias)
    np.testing.assert_array_equal(dweight, 8192)
    np.testing.assert_array_equal(dbias, 8192)
