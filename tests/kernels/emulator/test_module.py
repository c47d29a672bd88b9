"""Compiling and launching: names, templates, options, includes, built-ins, errors of the compiler."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator import CompileError, Out

CODE = """
#include "more.cuh"
#ifndef FACTOR
#define FACTOR 1
#endif

namespace tools {
template <class T> __global__ void fill(T* y, T value) { y[threadIdx.x] = value; }
}

template <class T, int n>
__global__ void repeat(T* y, T value) {
  for (int i = 0; i < n; i++) y[n * threadIdx.x + i] = value + T(i);
}

__global__ void plain(float* y) { y[threadIdx.x] = FACTOR * more(threadIdx.x); }

__device__ int launches = 0;
extern "C" __global__ void count_launches(int* y) { *y = ++launches; }

extern "C" __global__ void where_am_i(int* y) {
  long long block = blockIdx.x + gridDim.x * (blockIdx.y + (long long)gridDim.y * blockIdx.z);
  int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  y[block * blockDim.x * blockDim.y * blockDim.z + thread] = thread + 1000 * block;
}

extern "C" __global__ void wide_grid(int* last) {
  if (blockIdx.x == gridDim.x - 1) *last = blockIdx.x;
}

extern "C" __global__ void much_shared(float* y) {
  extern __shared__ float s[];
  const int n = 227 * 1024 / 4;
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = i;
  __syncthreads();
  y[threadIdx.x] = s[n - 1 - threadIdx.x];
}

extern "C" __global__ void votes(int* y) {
  int t = threadIdx.x;
  y[t] = __syncthreads_count(t % 3 == 0);
  y[64 + t] = __syncthreads_or(t == 63) + 2 * __syncthreads_or(t > 63) + 4 * __syncthreads_and(t < 64) + 8 * __syncthreads_and(t < 63);
  y[128 + t] = __ballot_sync(~0u, t % 2) == 0xaaaaaaaau;
  y[192 + t] = __any_sync(~0u, t == 40) + 2 * __all_sync(~0u, t < 32);
}

extern "C" __global__ void lanes(int* y) {
  int t = threadIdx.x;
  y[t] = __shfl_sync(~0u, t, 5);
  y[32 + t] = __shfl_sync(~0u, t, 3, 8);
  y[64 + t] = __shfl_up_sync(~0u, t, 3);
  y[96 + t] = __shfl_down_sync(~0u, t, 3, 16);
  y[128 + t] = __shfl_xor_sync(~0u, t, 9);
  y[160 + t] = __reduce_add_sync(~0u, t);
  y[192 + t] = __popc(__match_any_sync(~0u, t / 5));
  int all;
  y[224 + t] = (__match_all_sync(~0u, t / 32, &all) == ~0u) + all;
  if (t % 4 == 1) y[256 + t] = __popc(__activemask());
  else y[256 + t] = -__popc(__activemask());
}

extern "C" __global__ void atomics(unsigned* y, float* f, unsigned long long* wide) {
  unsigned t = threadIdx.x;
  atomicAdd(&y[0], t); atomicSub(&y[1], 1); atomicMax(&y[2], t); atomicMin(&y[3], t);
  atomicOr(&y[4], 1u << t % 32); atomicAnd(&y[5], ~(1u << t % 32)); atomicXor(&y[6], t);
  atomicInc(&y[7], 9); atomicDec(&y[8], 9); atomicCAS(&y[9], t, t + 1); atomicExch(&y[10], 7);
  atomicAdd(f, 0.5f); atomicAdd(wide, 1ull << 40);
}

extern "C" __global__ void arithmetic(double* y) {
  int i = 0;
  y[i++] = rsqrtf(4.0f); y[i++] = fmaf(2, 3, 4); y[i++] = max(3, 5u); y[i++] = min(2.5f, 3); y[i++] = __float2int_rn(2.5f);
  y[i++] = __float2int_rz(-1e30f); y[i++] = __clz(1); y[i++] = __ffs(8); y[i++] = __brev(1u); y[i++] = __umulhi(1u << 31, 4u);
  y[i++] = __byte_perm(0x03020100u, 0x07060504u, 0x7531u); y[i++] = __funnelshift_l(0x80000000u, 1u, 1); y[i++] = __saturatef(3.0f);
  y[i++] = isinf(INFINITY) && isnan(NAN) && !isfinite(HUGE_VALF); y[i++] = __dp4a(0x01020304, 0x01010101, 5); y[i++] = abs(-2.5f);
  y[i++] = __int_as_float(0x3f800000); y[i++] = erff(0.5f); y[i++] = __expf(1.0f); y[i++] = powf(2.0f, 0.5f);
}

static_assert(sizeof(min(1, 2)) == 4 && __is_same(decltype(min(1, 2)), int), "min returns a value");
static_assert(__is_same(decltype(max(1u, 2ll)), long long) && __is_same(decltype(max(1.0f, 2)), float), "of the common type");

extern "C" __global__ void smaller(int* y, const int* x, int n) { y[threadIdx.x] = min(max(x[threadIdx.x], -n), n); }

extern "C" __global__ void sleeps(long long* y) {
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  long long start = clock64();
  if (threadIdx.x == 0) while (!flag) __nanosleep(100);   // thread 40 runs later, and lets thread 0 go on
  if (threadIdx.x == 40) flag = 1;
  y[threadIdx.x] = clock64() >= start;
}

extern "C" __global__ void spin(float* y) { while (y[0] == 0.0f) {} }
"""
EXPRESSIONS = ("tools::fill<int>", "repeat<float, 4>", "repeat<double,2>")


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("include")
    (folder / "more.cuh").write_text("#pragma once\n__device__ inline int more(int i) { return i + 1; }\n")
    return emulator.Module(CODE, ["-DFACTOR=3", "--use_fast_math"], EXPRESSIONS, include_dirs=[folder])


def test_names(module):
    assert module.kernels[:3] == list(EXPRESSIONS)
    assert {"plain", "count_launches", "votes"} <= set(module.kernels)
    assert [p.text + " " + p.name for p in module.parameters("repeat<double,2>")] == ["double* y", "double value"]
    with pytest.raises(ValueError, match="no kernel repeat; .* must be listed in name_expressions"):
        module.launch("repeat", 1, 1, [])
    with pytest.raises(ValueError, match="no kernel missing; the module has: tools::fill<int>"):
        module.launch("missing", 1, 1, [])


def test_templates_and_options(module):
    y = np.zeros(8, np.int32)
    module.launch("tools::fill<int>", 1, 8, [Out(y), 5])
    assert (y == 5).all()
    f = np.zeros(8, np.float32)
    module.launch("repeat<float, 4>", 1, 2, [Out(f), 1.0])
    assert f.tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
    module.launch("plain", 1, 8, [Out(f)])
    assert (f == 3 * np.arange(1, 9)).all()


def test_device_variables_live_as_long_as_the_module(module):
    y = np.zeros(1, np.int32)
    counts = []
    for _ in range(3):
        module.launch("count_launches", 1, 1, [y])
        counts.append(int(y[0]))
    assert counts == [counts[0], counts[0] + 1, counts[0] + 2]


@pytest.mark.parametrize(("grid", "block"), [(3, 40), ((2, 3), (4, 5, 6)), ([2, 1, 2], (1024,)), (np.int64(2), (7, 3))])
def test_indices(module, grid, block):
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    y = np.zeros((blocks, threads), np.int32)
    module.launch("where_am_i", grid, block, [y])
    assert (y == np.arange(threads) + 1000 * np.arange(blocks)[:, None]).all()


def test_dimensions_are_whole_numbers(module):
    with pytest.raises(TypeError, match="grid must be one to three whole numbers; got 2.5"):
        module.launch("plain", 2.5, 1, [np.zeros(1, np.float32)])


def test_a_million_blocks(module):
    last = np.zeros(1, np.int32)
    module.launch("wide_grid", 10**6, 1, [last])
    assert last[0] == 10**6 - 1


def test_all_of_shared_memory(module):
    y = np.zeros(1024, np.float32)
    module.launch("much_shared", 1, 1024, [Out(y)], shared_mem=227 * 1024)
    assert (y == 227 * 256 - 1 - np.arange(1024)).all()


def test_votes(module):
    y = np.zeros((4, 64), np.int32)
    module.launch("votes", 1, 64, [y])
    assert (y[0] == 22).all() and (y[1] == 1 + 4).all() and y[2].all()
    assert (y[3].reshape(2, 32) == [[2], [1]]).all()


def test_lanes(module):
    y = np.zeros((9, 32), np.int32)
    module.launch("lanes", 1, 32, [y])
    t = np.arange(32)
    assert (y[0] == 5).all() and (y[1] == t // 8 * 8 + 3).all()
    assert (y[2] == np.where(t >= 3, t - 3, t)).all() and (y[3] == np.where(t % 16 < 13, t + 3, t)).all()
    assert (y[4] == t ^ 9).all() and (y[5] == t.sum()).all()
    assert (y[6] == np.bincount(t // 5)[t // 5]).all() and (y[7] == 2).all()
    assert (y[8] == np.where(t % 4 == 1, 8, -24)).all()


def test_atomics(module):
    y = np.array([0, 100, 0, 99, 0, 2**32 - 1, 0, 0, 0, 3, 0], np.uint32)
    f, wide = np.zeros(1, np.float32), np.zeros(1, np.uint64)
    module.launch("atomics", 1, 64, [y, f, wide])
    t = np.arange(64)
    assert y.tolist() == [t.sum(), 36, 63, 0, 2**32 - 1, 0, np.bitwise_xor.reduce(t), 64 % 10, (0 - 64) % 10, 64, 7]
    assert f[0] == 32 and wide[0] == 64 << 40


def test_arithmetic(module):
    y = np.zeros(20)
    module.launch("arithmetic", 1, 1, [y])
    expected = [0.5, 10, 5, 2.5, 2, -(2**31), 31, 4, 2**31, 2, 0x07050301, 3, 1, 1, 15, 2.5, 1, 0.5204999, np.e, np.sqrt(2)]
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_min_and_max_of_integers(module):
    x, y = np.arange(-30, 30, dtype=np.int32), np.empty(60, np.int32)
    module.launch("smaller", 1, 60, [Out(y), x, 7])
    assert (y == np.clip(x, -7, 7)).all()


def test_a_sleeping_thread_lets_others_run(module):
    y = np.zeros(64, np.int64)
    module.launch("sleeps", 1, 64, [y], time_limit=5)
    assert y.all()


def test_control_c_stops_a_kernel(module):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        module.launch("spin", 1, 1, [np.zeros(1, np.float32)])
    y = np.zeros(8, np.float32)
    module.launch("plain", 1, 8, [y])   # and the emulator still works
    assert y[0] == 3


def test_launches_from_threads_wait_for_each_other(module):
    results = [np.zeros(1024, np.float32) for _ in range(6)]
    workers = [threading.Thread(target=module.launch, args=("much_shared", 1, 1024, [r], 227 * 1024)) for r in results]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all((r == results[0]).all() for r in results) and results[0].any()


# ---- what does not compile


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("__global__ void f(float* y) {\n  y[0] = wrong;\n}", ["mine.cu:2", "wrong", "     2 |   y[0] = wrong;"]),
        ('__global__ void f(int* y) {\n  asm volatile("mov.u32 %0, %laneid;" : "=r"(*y));\n}', ["LLMLAB_EMULATED"]),
        ("__global__ void f() {}\nvoid host() { f<<<1, 2>>>(); }", ["mine.cu:2", "launched from Python"]),
        ("__global__ void f(float* p) { cudaFree(p); }", ["host code"]),
    ],
)
def test_compile_errors_quote_the_line(code, words):
    with pytest.raises(CompileError) as caught:
        emulator.Module(code, filename="mine.cu")
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_mode():
    with pytest.raises(ValueError, match="mode must be one of fast, check, profile; got 'slow'"):
        emulator.Module("", mode="slow")


def test_import_is_cheap():
    script = "import sys, numpy, time; t = time.perf_counter(); import llmlab.kernels.emulator; print(time.perf_counter() - t, 'subprocess' in sys.modules)"
    start = time.perf_counter()
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert time.perf_counter() - start < 30 and output
