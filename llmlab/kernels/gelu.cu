// GELU with the bias of the layer before it:  z = x + bias,  y = GELU(z).
// Fused: the sum z never reaches memory; forward reads x once and writes y once. Backward recomputes z, reads dy and x
// once, writes dx once, and sums dbias on the way.
//
// The tanh form of GPT-2 (Hendrycks and Gimpel, 2016), with u = sqrt(2 / pi) (z + 0.044715 z^3):
//   y = z (1 + tanh u) / 2 = z s,   s = 1 / (1 + exp(-2 u))
// The right-hand form needs one exponential and one reciprocal, and keeps its relative precision where tanh u is near -1
// and 1 + tanh u would cancel.
#include "common.cuh"

constexpr float TWO_SQRT_2_OVER_PI = 1.5957691216057308f;
constexpr float CUBIC = 0.044715f;

__device__ __forceinline__ float twice_u(float z) { return TWO_SQRT_2_OVER_PI * z * (1.0f + CUBIC * z * z); }

__device__ __forceinline__ float gate(float z) { return __fdividef(1.0f, 1.0f + __expf(-twice_u(z))); }

__device__ __forceinline__ float gelu(float z) { return z * gate(z); }

// ds/dz = s (1 - s) d(2 u)/dz,  so  dy/dz = s + z s (1 - s) sqrt(8 / pi) (1 + 3 * 0.044715 z^2)
// With e = exp(-|2 u|), s is 1 / (1 + e) or, for negative z, e / (1 + e), and s (1 - s) = e / (1 + e)^2 for both:
// 1 - s would cancel where s is near 1, and the factors of z make that large.
__device__ __forceinline__ float gelu_slope(float z) {
  const float e = __expf(-fabsf(twice_u(z))), r = __fdividef(1.0f, 1.0f + e);
  const float s = z < 0.0f ? e * r : r;
  return s + z * (e * r * r) * (TWO_SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * z * z));
}

// A thread owns as many columns as a pack has elements and walks down the rows, so that it reads its part of bias once
// and can sum its part of dbias in registers. With PACKED the columns are neighbours, moved by one 16-byte access;
// rows that are no multiple of 16 bytes are read element by element, and the columns lie blockDim.x apart so that a
// warp still reads neighbouring addresses. ONCE marks what moves as "evict first" (see common.cuh): on an H200 that is
// worth a third of the time forward, and costs backward, with its three streams, 2 %.
template <class T, bool PACKED, bool ONCE> struct Columns {
  static constexpr int size = Pack<T>::size;
  index_t first, C;

  __device__ __forceinline__ explicit Columns(index_t C) : C(C) {
    first = static_cast<index_t>(blockIdx.x) * blockDim.x * size + threadIdx.x * (PACKED ? size : 1);
  }
  __device__ __forceinline__ index_t at(int k) const { return first + k * (PACKED ? 1 : static_cast<index_t>(blockDim.x)); }
  __device__ __forceinline__ bool has(int k) const { return PACKED ? first < C : at(k) < C; }

  __device__ __forceinline__ void load(Pack<T>& pack, const T* row) const {
    if (PACKED) {
      if (first < C) pack = ONCE ? load_pack_once(row + first) : load_pack(row + first);
    } else {
#pragma unroll
      for (int k = 0; k < size; k++)
        if (has(k)) pack.at[k] = row[at(k)];
    }
  }
  __device__ __forceinline__ void store(T* row, const float (&v)[size]) const {
    if (PACKED) {
      Pack<T> pack;
      repack(pack, v);
      if (first < C && ONCE) store_pack_once(row + first, pack);
      if (first < C && !ONCE) store_pack(row + first, pack);
    } else {
#pragma unroll
      for (int k = 0; k < size; k++)
        if (has(k)) row[at(k)] = from_float<T>(v[k]);
    }
  }
};

// bias as float32 in registers; zeros where there is none.
template <bool BIAS, class T, class Columns>
__device__ __forceinline__ void load_bias(float (&b)[Pack<T>::size], const Columns& columns, const T* bias) {
  Pack<T> pack = {};
  if (BIAS) columns.load(pack, bias);
  unpack<T>(b, pack);
}

// Rows whose loads a thread starts before it uses the first: enough bytes under way to cover the memory's latency, and
// few enough registers for many warps.
constexpr int IN_FLIGHT = 2;

// Grid: column tiles in x, groups of rows in y; block: columns in x, rows in y. bias is null without BIAS.
template <class T, bool BIAS, bool PACKED>
__global__ void __launch_bounds__(256) gelu_forward(T* y, const T* x, const T* bias, index_t N, index_t C) {
  const Columns<T, PACKED, true> columns(C);
  float b[Pack<T>::size];
  load_bias<BIAS>(b, columns, bias);
  const index_t step = static_cast<index_t>(gridDim.y) * blockDim.y;
  for (index_t n = static_cast<index_t>(blockIdx.y) * blockDim.y + threadIdx.y; n < N; n += IN_FLIGHT * step) {
    Pack<T> x_pack[IN_FLIGHT];
#pragma unroll
    for (int r = 0; r < IN_FLIGHT; r++)
      if (n + r * step < N) columns.load(x_pack[r], x + (n + r * step) * C);
#pragma unroll
    for (int r = 0; r < IN_FLIGHT; r++) {
      if (n + r * step >= N) break;
      float v[Pack<T>::size];
      unpack<T>(v, x_pack[r]);
#pragma unroll
      for (int k = 0; k < Pack<T>::size; k++) v[k] = gelu(v[k] + b[k]);
      columns.store(y + (n + r * step) * C, v);
    }
  }
}

// dx = dy GELU'(z), and with BIAS partials[blockIdx.y][c] = the sum of dx[n][c] over this block's rows n. No
// atomics: what is left to add is added in a fixed order, by column_sum.cu, so the same input gives the same bits.
template <class T, bool BIAS, bool PACKED>
__global__ void __launch_bounds__(256)
gelu_backward(T* dx, float* partials, const T* dy, const T* x, const T* bias, index_t N, index_t C) {
  constexpr int size = Pack<T>::size;
  const Columns<T, PACKED, false> columns(C);
  float b[size], db[size] = {};
  load_bias<BIAS>(b, columns, bias);
  const index_t step = static_cast<index_t>(gridDim.y) * blockDim.y;
  for (index_t n = static_cast<index_t>(blockIdx.y) * blockDim.y + threadIdx.y; n < N; n += IN_FLIGHT * step) {
    Pack<T> x_pack[IN_FLIGHT], dy_pack[IN_FLIGHT];
#pragma unroll
    for (int r = 0; r < IN_FLIGHT; r++) {
      if (n + r * step >= N) break;
      columns.load(x_pack[r], x + (n + r * step) * C);
      columns.load(dy_pack[r], dy + (n + r * step) * C);
    }
#pragma unroll
    for (int r = 0; r < IN_FLIGHT; r++) {
      if (n + r * step >= N) break;
      float z[size], g[size];
      unpack<T>(z, x_pack[r]);
      unpack<T>(g, dy_pack[r]);
#pragma unroll
      for (int k = 0; k < size; k++) {
        g[k] *= gelu_slope(z[k] + b[k]);
        db[k] += g[k];
      }
      columns.store(dx + (n + r * step) * C, g);
    }
  }
  if (!BIAS) return;

  // Thread (tx, ty) holds the sums over its rows of the columns of tx: add over ty. Element k of all tx lies together,
  // so that a warp's 32 accesses fall into 32 different banks.
  __shared__ float sums[256 * size];
  const int tx = threadIdx.x, ty = threadIdx.y, width = blockDim.x;
#pragma unroll
  for (int k = 0; k < size; k++) sums[(ty * size + k) * width + tx] = db[k];
  __syncthreads();
  for (int k = ty; k < size; k += blockDim.y) {
    float sum = 0.0f;
    for (int row = 0; row < static_cast<int>(blockDim.y); row++) sum += sums[(row * size + k) * width + tx];
    if (columns.has(k)) partials[static_cast<index_t>(blockIdx.y) * C + columns.at(k)] = sum;
  }
}
