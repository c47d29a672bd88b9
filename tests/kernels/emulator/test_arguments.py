"""The guard of a launch: what fits is converted, what does not is refused by name."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator import Out
from llmlab.kernels.emulator.compilers import find_compiler

CODE = (Path(__file__).parent / "arguments.cu").read_text()


@pytest.fixture(scope="module", params=["fast", "check"])
def module(request):
    return emulator.Module(CODE, mode=request.param)


def arrays(n=5):
    return np.zeros(n, np.float32), np.arange(n, dtype=np.float32)


@pytest.mark.parametrize(
    "by", [2, 2.0, True, np.float64(2), np.float32(2), np.int64(2), np.array(2.0), ml_dtypes.bfloat16(2)]
)
def test_numbers_become_the_parameters_type(module, by):
    y, x = arrays()
    module.launch("scale", 1, 8, [y, x, by, np.int64(5)])
    assert (y == float(by) * x).all()


def test_every_kind_of_value(module):
    y = np.zeros(9)
    settings = np.array([(0.5, 3)], np.dtype([("scale", "f4"), ("shift", "i4")]))[0]
    quad = np.arange(4, dtype=np.float32)
    module.launch("values", 1, 1, [y, True, -3, 2**32 - 1, -(2**40), 0.1, 0.1, 0.1, quad.tobytes(), settings])
    assert y.tolist() == [
        1,
        -3,
        2**32 - 1,
        -(2.0**40),
        float(np.float16(0.1)),
        float(ml_dtypes.bfloat16(0.1)),
        0.1,
        2,
        3.5,
    ]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"by": None}, TypeError, "argument 2, float by, is a value; None was given"),
        ({"by": "2"}, TypeError, "argument 2, float by, needs a number; got '2'"),
        ({"by": 1j}, TypeError, "needs a number"),
        ({"by": np.ones(3, np.float32)}, TypeError, r"an array of shape \(3,\) was given"),
        ({"n": 5.0}, TypeError, "argument 3, int n, needs a whole number; got 5.0"),
        ({"n": 2**31}, ValueError, "int n, holds -2147483648 to 2147483647; got 2147483648"),
        ({"x": [1.0, 2.0]}, TypeError, r"argument 1, const float\* x, is a pointer and needs a NumPy array"),
        ({"x": 12345}, TypeError, "is a pointer"),
        ({"x": np.arange(5.0)}, TypeError, "needs an array of float32; got float64"),
        ({"x": np.arange(5, dtype=np.int32)}, TypeError, "needs an array of float32; got int32"),
        ({"x": np.arange(10, dtype=np.float32)[::2]}, ValueError, r"view with strides \(8,\)"),
        ({"x": np.zeros((2, 3), np.float32).T}, ValueError, "contiguous"),
        ({"x": Out(np.zeros(5, np.float32))}, ValueError, "cannot be an output"),
    ],
)
def test_refused_by_name(module, change, error, words):
    y, x = arrays()
    args = {"y": y, "x": x, "by": 2.0, "n": 5} | change
    with pytest.raises(error, match=words):
        module.launch("scale", 1, 8, list(args.values()))
    assert not y.any()


def test_a_wrong_count_names_the_parameters(module):
    with pytest.raises(
        TypeError,
        match=r"scale takes 4 arguments \(float\* y, const float\* x, float by, int n\); 1 were given",
    ):
        module.launch("scale", 1, 8, [arrays()[0]])
    module.launch("nothing", 1, 8, [])


def test_dtypes_of_pointers(module):
    good = [
        np.zeros(1, ml_dtypes.bfloat16),
        np.zeros(1, np.float16),
        np.zeros(1, np.uint8),
        np.zeros(1),
        np.zeros(8, np.float32),
        np.zeros(1, bool),
    ]
    module.launch("types", 1, 1, good)
    for position, wrong in [(0, np.zeros(1, np.uint16)), (1, np.zeros(1, np.int16)),
                            (2, np.zeros(1, np.int8)),
                            (4, np.zeros(8, np.int32)), (5, np.zeros(1, np.uint8))]:  # fmt: skip
        with pytest.raises(TypeError, match=f"argument {position}"):
            module.launch("types", 1, 1, [*good[:position], wrong, *good[position + 1 :]])
    with pytest.raises(ValueError, match="elements of 16 bytes; the array has 28 bytes"):
        module.launch("types", 1, 1, [*good[:4], np.zeros(7, np.float32), good[5]])


def test_none_is_a_null_pointer(module):
    y = np.zeros(1, np.float32)
    module.launch("maybe", 1, 1, [y, None])
    assert y[0] == -1


def test_a_read_only_array_is_input_only(module):
    y, x = arrays()
    x.flags.writeable = False
    module.launch("scale", 1, 8, [y, x, 2.0, 5])
    with pytest.raises(
        ValueError, match=r"float\* y, may be written by the kernel, and the array is read-only"
    ):
        module.launch("scale", 1, 8, [x, y, 2.0, 5])


def test_arrays_of_one_memory_share_it(module):
    x = np.arange(8, dtype=np.float32)
    module.launch("add_in_place", 1, 8, [x, x])
    assert (x == np.arange(1, 9)).all()
    module.launch("shift_in_place", 1, 7, [x[:7], x[1:]])  # overlapping views
    assert (x == [2, 3, 4, 5, 6, 7, 8, 8]).all()


def test_empty_arrays(module):
    empty = np.zeros(0, np.float32)
    module.launch("scale", 1, 8, [empty, empty, 2.0, 0])


def test_outputs_by_name(module):
    y, x = arrays()
    module.launch("scale", 1, 8, [y, x, 2.0, 5], outputs=["y"])
    with pytest.raises(ValueError, match="no parameter z"):
        module.launch("scale", 1, 8, [y, x, 2.0, 5], outputs=["z"])


def test_alignment_follows_the_offset_in_the_array_that_owns_the_memory(module):
    whole = np.arange(40, dtype=np.float32)
    y = np.zeros(16, np.float32)
    module.launch("by_four", 1, 4, [y, whole[4:20]])
    assert (y == whole[4:20]).all()
    if module.mode == "check" and find_compiler().is_gnu:  # clang copies a vector as bytes
        with pytest.raises(emulator.MisalignedError) as caught:
            module.launch("by_four", 1, 4, [y, whole[1:17]])
        assert (caught.value.array, caught.value.index) == ("x", 0)


def test_large_arrays_run_in_place(module, monkeypatch):
    from llmlab.kernels.emulator import buffers

    monkeypatch.setattr(buffers, "COPIED_BYTES", 0)
    y, x = arrays()
    module.launch("scale", 1, 8, [Out(y), x, 2.0, 5])
    assert (y == 2 * x).all()
