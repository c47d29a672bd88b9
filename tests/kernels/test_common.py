"""common.cuh and tensor_core.cuh by themselves, and proof that check mode guards what they promise."""

import ml_dtypes
import numpy as np
import pytest

from llmlab import kernels
from llmlab.kernels import source
from llmlab.kernels.emulator import RaceError, UninitialisedError

ROW = """
#include "common.cuh"
// y = x + 1 on each row of C, packs shifted to boundaries
extern "C" __global__ void add_one(__half* y, const __half* x, int C) {
  const __half* row = x + static_cast<index_t>(blockIdx.x) * C;
  const int first = first_pack(row);
  float v[8];
  for (int i = first + 8 * threadIdx.x; i < C; i += 8 * blockDim.x) {
    load_row<false>(v, row, i, C, 1e4f);
    for (int k = 0; k < 8; k++) v[k] += 1.0f;
    store_row<false>(y + static_cast<index_t>(blockIdx.x) * C, i, C, v);
  }
}
extern "C" __global__ void reduce(float* y, const float* x) {
  const float sum = block_sum(x[threadIdx.x]), largest = block_max(x[threadIdx.x]);
  y[threadIdx.x] = sum;
  y[blockDim.x + threadIdx.x] = largest + block_sum(0.0f);
}
"""

TILE = """
#include "tensor_core.cuh"
// d (16, 8) = a (16, 16) @ b (16, 8), all through shared memory
template <class T> __global__ void multiply(float* d, const T* a, const T* b) {
  __shared__ alignas(16) T as[16][16];
  __shared__ alignas(16) T bs[16][8];
  const int lane = threadIdx.x;
  cp_async(&as[lane / 2][lane % 2 * 8], a + lane * 8);
  if (lane < 16) cp_async(&bs[lane][0], b + lane * 8);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  unsigned a_regs[4], b_regs[2];
  ldmatrix_x4(a_regs, &as[lane % 16][lane / 16 * 8]);
  ldmatrix_x2_trans(b_regs, &bs[lane % 16][0]);
  float sum[4] = {};
  mma_m16n8k16<T>(sum, a_regs, b_regs);
  for (int k = 0; k < 4; k++) d[(lane / 4 + k / 2 * 8) * 8 + lane % 4 * 2 + k % 2] = sum[k];
}
// zeros where the copy is not valid
extern "C" __global__ void copy_or_zero(float* y, const float* x, int n) {
  __shared__ alignas(16) float s[128];
  cp_async(&s[4 * threadIdx.x], x + 4 * threadIdx.x, threadIdx.x < n);
  cp_async_commit();
  cp_async_wait<0>();
  for (int k = 0; k < 4; k++) y[4 * threadIdx.x + k] = s[4 * threadIdx.x + k];
}
// what pair() packs, and each ldmatrix, read back element by element
template <class T> __global__ void spread(unsigned* r, const T* x) {
  __shared__ alignas(16) T s[32][8];
  for (int k = 0; k < 8; k++) s[threadIdx.x][k] = x[threadIdx.x * 8 + k];
  __syncthreads();
  unsigned one[1], two[2], four[4], *out = r + threadIdx.x * 15;
  ldmatrix_x1(one, s[threadIdx.x]), out[0] = one[0];
  ldmatrix_x1_trans(one, s[threadIdx.x]), out[1] = one[0];
  ldmatrix_x2(two, s[threadIdx.x]), out[2] = two[0], out[3] = two[1];
  ldmatrix_x2_trans(two, s[threadIdx.x]), out[4] = two[0], out[5] = two[1];
  ldmatrix_x4(four, s[threadIdx.x]);
  for (int k = 0; k < 4; k++) out[6 + k] = four[k];
  ldmatrix_x4_trans(four, s[threadIdx.x]);
  for (int k = 0; k < 4; k++) out[10 + k] = four[k];
  out[14] = pair<T>(to_float(s[threadIdx.x][0]), to_float(s[threadIdx.x][1]));
}
"""


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def xp(request):
    if request.param == "cuda":
        import cupy

        yield cupy
    else:
        with kernels.emulated("check"):
            yield np


@pytest.mark.parametrize("C", [1, 7, 8, 13, 64, 77])
def test_rows_off_a_boundary(xp, C):
    x = xp.arange(3 * C).reshape(3, C).astype(np.float16)
    y = xp.empty_like(x)
    kernels.RawModule(code=ROW).get_function("add_one")((3,), (32,), (kernels.Out(y), x, C))
    assert (y == x + 1).all()


def test_block_reductions(xp):
    x = xp.asarray(np.random.default_rng(0).permutation(256).astype(np.float32)) - 300
    y = xp.empty(512, np.float32)
    kernels.RawModule(code=ROW).get_function("reduce")((1,), (256,), (kernels.Out(y), x))
    assert (y[:256] == x.sum()).all()
    assert (y[256:] == -45).all()


@pytest.mark.parametrize(("name", "dtype"), [("__half", np.float16), ("__nv_bfloat16", ml_dtypes.bfloat16)])
def test_matrix_product_of_a_warp(xp, name, dtype):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape).astype(dtype) for shape in ((16, 16), (16, 8)))
    d = xp.empty((16, 8), np.float32)
    multiply = kernels.RawModule(code=TILE).get_function(f"multiply<{name}>")
    multiply((1,), (32,), (kernels.Out(d), xp.asarray(a), xp.asarray(b)))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    assert d.tolist() == expected.tolist()


def test_a_copy_that_is_not_valid_leaves_zeros(xp):
    x, y = xp.arange(1, 129, dtype=np.float32), xp.empty(128, np.float32)
    kernels.RawModule(code=TILE).get_function("copy_or_zero")((1,), (32,), (kernels.Out(y), x, 20))
    assert (y[:80] == x[:80]).all()
    assert not y[80:].any()


def test_ldmatrix_in_every_form(xp):
    x = np.arange(256, dtype=np.float16).reshape(4, 8, 8)  # four matrices
    r = xp.empty((32, 15), np.uint32)
    spread = kernels.RawModule(code=TILE).get_function("spread<__half>")
    spread((1,), (32,), (kernels.Out(r), xp.asarray(x)))
    halves = np.asarray(r.tolist(), np.uint32).view(np.float16).reshape(32, 15, 2)
    rows, columns = np.arange(32) // 4, np.arange(32) % 4 * 2
    plain = np.stack([x[:, rows, columns], x[:, rows, columns + 1]], -1)  # matrix, lane, half
    turned = np.stack([x[:, columns, rows], x[:, columns + 1, rows]], -1)
    forms = [(0, 1, plain), (1, 1, turned), (2, 2, plain), (4, 2, turned), (6, 4, plain), (10, 4, turned)]
    for start, count, expected in forms:
        np.testing.assert_array_equal(halves[:, start : start + count].swapaxes(0, 1), expected[:count])
    np.testing.assert_array_equal(halves[:, 14], x.reshape(32, 8)[:, :2])


@pytest.mark.parametrize(
    ("file", "remove", "kernel", "args", "fault"),
    [
        ("softmax.cu", "  if (lane == 0) of_warp[warp] = v;\n  __syncthreads();",
         "softmax_forward<float, 2, true, true>", (2, 512), RaceError),
        ("softmax.cu", "  cp_async_wait<0>();",
         "softmax_forward_long<float, true>", (512, 128), UninitialisedError),
    ],
    ids=["a barrier", "a wait"],
)  # fmt: skip
def test_what_is_left_out_is_found(file, remove, kernel, args, fault):
    """The shipped text less one line: check mode must see that, or it guards nothing."""
    code = source.with_includes(source.read(file), file)
    assert remove in code
    without = code.replace(remove, remove.partition("\n")[0] if "\n" in remove else "")
    x = np.random.default_rng(0).standard_normal((2, 512)).astype(np.float32)
    shared = 2048 if "long" in kernel else 0
    with kernels.emulated("check"):
        for text in (code, without):
            launch = kernels.RawModule(code=text, name=file).get_function(kernel)
            arguments = (kernels.Out(np.empty_like(x)), x, *args)
            if text is code:
                launch((2,), (64,), arguments, shared_mem=shared)
            else:
                with pytest.raises(fault):
                    launch((2,), (64,), arguments, shared_mem=shared)
