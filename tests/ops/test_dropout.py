"""Dropout: its bits are Philox's, its rate is p, and its mask depends on the place alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmlab.arrays import bfloat16, float32
from llmlab.ops import dropout


@pytest.mark.parametrize(("counter", "key", "expected"), [
    # Random123 1.14, tests/kat_vectors: philox4x32 10
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
])
def test_known_answers(counter, key, expected):
    words = dropout.philox(tuple(np.full(1, c, np.uint64) for c in counter), key)
    assert tuple(int(w[0]) for w in words) == expected


def test_words_are_dealt_out_as_documented():
    seed, step, layer = 5 * 2**32 + 7, 11, 13
    block = 3
    words = dropout.philox(tuple(np.full(1, c, np.uint64) for c in (block, 0, step, layer)), (7, 5))
    kept = dropout.keep(16, 0.5, seed, step, layer)
    assert kept[4 * block:].tolist() == [int(w[0]) >= 2**31 for w in words]


@given(cut=st.integers(0, 40), p=st.sampled_from([0.1, 0.5, 0.9]))
def test_a_part_takes_its_part_of_the_mask(cut, p):
    x = np.ones(41, float32)
    whole = dropout.forward(x, p, 1, 2, 3)
    parts = dropout.forward(x[:cut], p, 1, 2, 3), dropout.forward(x[cut:], p, 1, 2, 3, offset=cut)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.75])
def test_rate_and_mean(p):
    y = dropout.forward(np.ones(200_000, float32), p, seed=0, step=0, layer=0)
    assert (y == 0).mean() == pytest.approx(p, abs=5e-3)
    assert y.mean() == pytest.approx(1, abs=2e-2)


def test_seed_step_and_layer_each_change_the_mask():
    keys = (0, 0, 0), (1, 0, 0), (2**32, 0, 0), (0, 1, 0), (0, 0, 1)
    masks = {dropout.keep(64, 0.5, *key).tobytes() for key in keys}
    assert len(masks) == 5


def test_the_generator_of_numpy_is_not_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - the global generator is the one in question
    dropout.forward(np.ones(10), 0.5, 0, 0, 0)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("step", [7, np.int64(7), np.array(7), np.array([7])], ids=repr)
def test_a_step_of_any_kind(step):
    x = np.ones(100, bfloat16)
    np.testing.assert_array_equal(dropout.forward(x, 0.5, 1, step, 0), dropout.forward(x, 0.5, 1, 7, 0))


def test_no_dropout_is_the_identity():
    x = np.arange(5, dtype=float32)
    np.testing.assert_array_equal(dropout.forward(x, 0.0, 0, 0, 0), x)


@pytest.mark.parametrize("p", [-0.1, 1.0, np.nan])
def test_an_impossible_rate_is_an_error(p):
    with pytest.raises(ValueError, match="p is"):
        dropout.forward(np.ones(3), p, 0, 0, 0)


@pytest.mark.parametrize(("name", "value"), [
    ("seed", 1.5), ("seed", None), ("step", "7"), ("step", 0.5), ("layer", float("inf")), ("offset", 1.0),
])
def test_a_place_that_is_no_integer_is_an_error(name, value):
    with pytest.raises(TypeError, match=f"{name} is .*, needs to be an integer"):
        dropout.forward(np.ones(3), **{"p": 0.5, "seed": 0, "step": 0, "layer": 0, name: value})


def test_an_offset_below_zero_is_an_error():
    with pytest.raises(ValueError, match="offset is -1, needs to be at least 0"):
        dropout.forward(np.ones(3), 0.5, 0, 0, 0, offset=-1)


def test_a_rate_that_is_no_number_is_an_error():
    with pytest.raises(TypeError, match="p is '0.5', needs to be a number"):
        dropout.forward(np.ones(3), "0.5", 0, 0, 0)
