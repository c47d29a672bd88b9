"""Flat buffers: layout, views, precision."""

import numpy as np
import pytest

from llmlab.graph import Parameter
from llmlab.parameters import ALIGNMENT, Parameters

SPECS = {
    "ln.weight": Parameter("ln.weight", (5,), decayed=False),
    "wte.weight": Parameter("wte.weight", (7, 5), decayed=True),
    "fc.weight": Parameter("fc.weight", (65, 3), decayed=True),
    "fc.bias": Parameter("fc.bias", (65,), decayed=False),
}


def test_decayed_ones_come_first_aligned_and_apart():
    p = Parameters(SPECS)
    covered = np.zeros(p.master.size, int)
    for name, (at, shape) in p.layout.items():
        assert at % ALIGNMENT == 0
        assert (at < p.decay_end) == SPECS[name].decayed
        covered[at:at + int(np.prod(shape))] += 1
    assert covered.max() == 1
    assert covered.sum() == p.count == 5 + 35 + 195 + 65


@pytest.mark.parametrize(("dtype", "master"), [
    ("float32", np.float32), ("float64", np.float64), ("bfloat16", np.float32), ("float16", np.float32)])
def test_masters_and_gradients_are_in_the_dtype_of_sums(dtype, master):
    p = Parameters(SPECS, dtype=dtype)
    assert p.master.dtype == p.gradient.dtype == p.grad["fc.bias"].dtype == master
    assert p["fc.bias"].dtype.name == dtype
    assert (p.compute is p.master) == (dtype in ("float32", "float64"))
    assert p.master.ctypes.data % 256 == 0


def test_views_are_windows_into_the_flat_buffers():
    p = Parameters(SPECS, dtype="bfloat16")
    values = np.arange(35.0).reshape(7, 5) + 1 / 3
    p.write("wte.weight", values)
    assert not p["wte.weight"].any()
    p.refresh()
    np.testing.assert_array_equal(p["wte.weight"], values.astype(np.float32).astype(p.dtype))
    p.grad["fc.bias"][...] = 1
    assert p.gradient.sum() == 65
    p.zero_grad()
    assert not p.gradient.any()


def test_bad_input_is_named():
    p = Parameters(SPECS)
    with pytest.raises(ValueError, match=r"'fc\.bias' has shape \(65,\), was given an array of shape \(3,\)"):
        p.write("fc.bias", np.zeros(3))
    with pytest.raises(KeyError, match=r"no parameter 'fc'; there are ln\.weight"):
        p["fc"]
    with pytest.raises(ValueError, match="device is 'tpu'"):
        Parameters(SPECS, device="tpu")
    with pytest.raises(MemoryError, match=r"cannot allocate 1\d+ elements of float32"):
        Parameters({"w": Parameter("w", (10**13, 10**13), decayed=True)})
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        Parameters(SPECS, dtype="int8")
