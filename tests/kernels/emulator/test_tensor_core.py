"""mma, ldmatrix and cp.async against NumPy: the layouts of fragments as the PTX manual draws them."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator import InactiveLaneError, Out

CODE = (Path(__file__).parent / "tensor_core.cu").read_text()
LOADS = [(count, transposed) for count in (1, 2, 4) for transposed in (False, True)]


@pytest.fixture(scope="module", params=["fast", "check"])
def module(request):
    loads = [f"load<{count}, {str(t).lower()}>" for count, t in LOADS]
    names = ["product<true>", "product<false>", *loads]
    return emulator.Module(CODE, name_expressions=names, mode=request.param, filename="tensor.cu")


@pytest.mark.parametrize(("flag", "dtype"), [("true", ml_dtypes.bfloat16), ("false", np.float16)])
def test_product(module, flag, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((16, 16)).astype(dtype), rng.standard_normal((16, 8)).astype(dtype)
    c = rng.standard_normal((16, 8)).astype(np.float32)
    expected = c + a.astype(np.float64) @ b.astype(np.float64)
    columns = np.ascontiguousarray(b.T)
    module.launch(f"product<{flag}>", 1, 32, [c, a.view(np.uint32), columns.view(np.uint32)])
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("count", "transposed"), LOADS)
def test_ldmatrix(module, count, transposed):
    x = np.arange(256, dtype=np.uint16)
    y = np.empty((count, 32), np.uint32)
    module.launch(f"load<{count}, {str(transposed).lower()}>", 1, 32, [Out(y), x])
    matrices = x.reshape(4, 8, 8)[:count]
    if transposed:
        matrices = matrices.transpose(0, 2, 1)
    pairs = np.ascontiguousarray(matrices).reshape(
        count, 32, 2
    )  # lane l: row l/4, columns 2 (l%4) and the next
    assert (y.view(np.uint16).reshape(count, 32, 2) == pairs).all()


def test_a_product_needs_the_whole_warp(module):
    with pytest.raises(InactiveLaneError, match="mma.m16n8k16") as caught:
        module.launch("half_a_warp", 1, 32, [np.zeros(32, np.float32), np.zeros(1, np.uint32)])
    assert caught.value.line == 1 + CODE[: CODE.index("// FAULT")].count("\n")


def test_copy_pipeline(module):
    x = np.random.default_rng(1).standard_normal((5, 128)).astype(np.float32)
    y = np.empty(32, np.float32)
    module.launch("pipeline", 1, 32, [Out(y), x, 5])
    np.testing.assert_allclose(y, np.roll(x.sum(0), -4).reshape(32, 4).sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("values", [0, 1, 3, 4])
def test_copy_fills_the_rest_with_zeros(module, values):
    x, y = np.arange(1, 129, dtype=np.float32), np.empty((32, 4), np.float32)
    module.launch("copy_with_zeros", 1, 32, [Out(y), x, 4 * values])
    expected = x.reshape(32, 4).copy()
    expected[:, values:] = 0
    assert (y == expected).all()
