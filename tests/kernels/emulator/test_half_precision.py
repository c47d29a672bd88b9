"""bfloat16 and half: every value, and arithmetic rounded once to nearest even, as ml_dtypes rounds it."""

import ml_dtypes
import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator import Out

CODE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class T> __global__ void to_float(float* y, const T* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = float(x[i]);
}
template <class T> __global__ void from_float(T* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = T(x[i]);
}
template <class T> __global__ void from_double(T* y, const double* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = T(x[i]);
}
template <class T> __global__ void arithmetic(T* y, const T* a, const T* b, const T* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = a[i] + b[i];
  y[n + i] = a[i] - b[i];
  y[2 * n + i] = a[i] * b[i];
  y[3 * n + i] = a[i] / b[i];
  y[4 * n + i] = hsqrt(__habs(a[i]));
  y[5 * n + i] = __hfma(a[i], b[i], c[i]);
  y[6 * n + i] = -a[i];
}

// The pairs do what the single ones do.
extern "C" __global__ void pairs(__nv_bfloat162* y, const __nv_bfloat162* a, const __nv_bfloat162* b, int n) {
  int i = threadIdx.x;
  y[i] = __hfma2(a[i], b[i], __hadd2(a[i], b[i]));
  y[n + i] = __floats2bfloat162_rn(__low2float(a[i]) + 1.0f, __high2float(a[i]) - 1.0f);
  float2 f = __bfloat1622float2(b[i]);
  y[2 * n + i] = __float22bfloat162_rn(make_float2(2.0f * f.x, 2.0f * f.y));
}
"""
TYPES = {"__nv_bfloat16": np.dtype(ml_dtypes.bfloat16), "__half": np.dtype(np.float16)}
KERNELS = ("to_float", "from_float", "from_double", "arithmetic")


@pytest.fixture(scope="module")
def module():
    return emulator.Module(CODE, name_expressions=[f"{k}<{t}>" for k in KERNELS for t in TYPES])


@pytest.fixture(params=TYPES)
def name(request):
    return request.param


def run(module, kernel, y, *inputs):
    n = inputs[0].size
    module.launch(kernel, -(-n // 256), 256, [Out(y), *inputs, n])
    return y


def same_bits(found, expected):
    """Equal, NaN for NaN, and zeros of the same sign."""
    nan = np.isnan(expected.astype(np.float64))
    assert (np.isnan(found.astype(np.float64)) == nan).all()
    assert (found.view(np.uint16)[~nan] == expected.view(np.uint16)[~nan]).all()


def test_every_value_to_float(module, name):
    x = np.arange(65536, dtype=np.uint16).view(TYPES[name])
    y = run(module, f"to_float<{name}>", np.empty(x.size, np.float32), x)
    expected = x.astype(np.float32)
    nan = np.isnan(expected)
    assert (y[~nan].view(np.uint32) == expected[~nan].view(np.uint32)).all()
    assert np.isnan(y[nan]).all()


def floats_that_round(dtype, rng):
    """Random floats, every value of the type, and the places half way between neighbours and just beside."""
    values = np.arange(65536, dtype=np.uint16).view(dtype).astype(np.float32)
    finite = np.sort(values[np.isfinite(values)])
    between = (finite[:-1].astype(np.float64) + finite[1:]) / 2
    between = between.astype(np.float32)
    beside = np.concatenate(
        [np.nextafter(between, np.float32(np.inf)), np.nextafter(between, np.float32(-np.inf))]
    )
    anything = rng.integers(0, 2**32, 50000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([values, between, beside, anything])


def test_from_float(module, name):
    x = floats_that_round(TYPES[name], np.random.default_rng(0))
    y = run(module, f"from_float<{name}>", np.empty(x.size, TYPES[name]), x)
    with np.errstate(over="ignore", invalid="ignore"):
        same_bits(y, x.astype(TYPES[name]))


def test_from_double_rounds_once(module, name):
    """A double just above the middle must go up even if float would put it on the middle."""
    one_and_half_step = 1 + 2.0 ** (-9 if name == "__half" else -6) / 4
    step = 2.0 ** (-10 if name == "__half" else -7)
    middle = 1 + step / 2
    x = np.array(
        [
            middle,
            middle + 2.0**-40,
            middle - 2.0**-40,
            -middle - 2.0**-40,
            one_and_half_step,
            0.1,
            1e300,
            np.nan,
        ]
    )
    y = run(module, f"from_double<{name}>", np.empty(x.size, TYPES[name]), x)
    assert y[:4].astype(float).tolist() == [1.0, 1 + step, 1.0, -1 - step]
    assert float(y[6]) == np.inf and np.isnan(float(y[7]))


def test_arithmetic(module, name):
    rng = np.random.default_rng(1)
    dtype = TYPES[name]
    a, b, c = (rng.integers(0, 65536, 60000).astype(np.uint16).view(dtype) for _ in range(3))
    near = (rng.standard_normal((3, 20000)) * 2.0 ** rng.integers(-6, 6, (3, 20000))).astype(dtype)
    a, b, c = (np.concatenate([x, y]) for x, y in zip((a, b, c), near, strict=True))
    y = run(module, f"arithmetic<{name}>", np.empty(7 * a.size, dtype), a, b, c).reshape(7, -1)
    with np.errstate(all="ignore"):
        x64, y64, z64 = (v.astype(np.longdouble) for v in (a, b, c))
        f32 = [v.astype(np.float32) for v in (a, b)]
        same_bits(y[0], (f32[0] + f32[1]).astype(dtype))
        same_bits(y[1], (f32[0] - f32[1]).astype(dtype))
        same_bits(y[2], (f32[0] * f32[1]).astype(dtype))
        same_bits(y[3], (f32[0] / f32[1]).astype(dtype))
        same_bits(y[4], np.sqrt(np.abs(f32[0])).astype(dtype))
        same_bits(y[6], -a)
        exact = x64 * y64 + z64  # 64 bits of fraction: exact for half, and beyond doubt for the near values
        ours = slice(-20000, None)
        same_bits(y[5][ours], rounded(exact[ours], dtype))


def rounded(exact, dtype):
    """To the nearest value of the type, ties to even, from an exact number."""
    near = exact.astype(np.float64).astype(np.float32).astype(dtype)
    bits = near.view(np.uint16).astype(np.int64)
    candidates = np.stack([(bits + step).astype(np.uint16).view(dtype) for step in (-1, 0, 1)])
    distance = np.abs(candidates.astype(np.longdouble) - exact)
    distance[np.isnan(distance)] = np.inf
    order = np.lexsort((candidates.view(np.uint16) & 1, distance), axis=0)
    return np.take_along_axis(candidates, order[:1], axis=0)[0]


def test_pairs(module):
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 64)).astype(ml_dtypes.bfloat16)
    y = np.empty(3 * 64, a.dtype)
    module.launch("pairs", 1, 32, [Out(y), a, b, 32])
    total = (a.astype(np.float32) + b.astype(np.float32)).astype(a.dtype)
    same_bits(
        y[:64],
        rounded(a.astype(np.longdouble) * b.astype(np.longdouble) + total.astype(np.longdouble), a.dtype),
    )
    one = np.tile(np.float32([1, -1]), 32)
    same_bits(y[64:128], (a.astype(np.float32) + one).astype(a.dtype))
    same_bits(y[128:], (2 * b.astype(np.float32)).astype(a.dtype))
