// What a kernel may use: indices, votes, shuffles, atomics, arithmetic.
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
