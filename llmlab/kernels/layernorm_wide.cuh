// Layer normalisation of rows too wide for registers: a block a row, which it reads once for each pass over it. All
// passes but the first mostly find the row in the caches. The arithmetic is that of layernorm.cuh.
#pragma once
#include "layernorm.cuh"

template <Forward KIND, class T, int E>
__device__ __forceinline__ void wide_forward_row(T* r, T* y, float* mean, float* rstd, const T* x, const T* branch,
                                                 const T* weight, const T* bias, const T* branch_bias, int C, float eps) {
  const index_t row = blockIdx.x;
  const int first = threadIdx.x * E, step = blockDim.x * E;
  const T* read = x + row * C;
  float sum = 0.0f, v[E], u[E], b[E] = {};
  if (KIND != RECOMPUTE) {
    for (int c = first; c < C; c += step) {
      Packed<T, E> pack = Packed<T, E>::load(read + c);
      pack.get(v);
      if (KIND == BRANCH) {
        Packed<T, E>::load(branch + row * C + c).get(u);
        if (branch_bias != nullptr) Packed<T, E>::load(branch_bias + c).get(b);
#pragma unroll
        for (int e = 0; e < E; e++) v[e] += u[e] + b[e];
        pack.set(v);  // rounded as it is stored
        pack.store(r + row * C + c);
        pack.get(v);
      }
#pragma unroll
      for (int e = 0; e < E; e++) sum += v[e];
    }
  }
  if (KIND == BRANCH) read = r + row * C;  // a thread reads back only what it wrote itself
  const float row_mean = KIND == RECOMPUTE ? mean[row] : block_sum(sum) / C;

  float2 sums = make_float2(0.0f, 0.0f);
  for (int c = first; c < C; c += step) {
    Packed<T, E>::load(read + c).get(v);
#pragma unroll
    for (int e = 0; e < E; e++) {
      const float d = v[e] - row_mean;
      sums.x += d;
      sums.y += d * d;
    }
  }
  sums = make_float2(block_sum(sums.x), block_sum(sums.y));
  Statistics s = statistics(row_mean, sums, C, eps);
  if (KIND == RECOMPUTE) s.rstd = rstd[row];

  for (int c = first; c < C; c += step) {
    Packed<T, E> pack = Packed<T, E>::load(read + c);
    pack.get(v);
    Packed<T, E>::load(weight + c).get(u);
    Packed<T, E>::load(bias + c).get(b);
#pragma unroll
    for (int e = 0; e < E; e++) v[e] = normalised(v[e], s, u[e], b[e]);
    pack.set(v);
    pack.store(y + row * C + c);
  }
  if (KIND != RECOMPUTE && threadIdx.x == 0) {
    mean[row] = s.mean;
    rstd[row] = s.rstd;
  }
}

// The statistics are complete only with the shift, which backward sums anew: shifts[row], for wide_column_sums too.
template <bool DR, class T, int E>
__device__ __forceinline__ void wide_backward_row(T* dx, const float* shifts, const T* dr, const T* dy, const T* x,
                                                  const T* weight, const float* mean, const float* rstd, int C) {
  const index_t row = blockIdx.x;
  const int first = threadIdx.x * E, step = blockDim.x * E;
  const float m = mean[row], shift = shifts[row], rs = rstd[row];
  dy += row * C;
  x += row * C;
  float dy_c[E], x_c[E], w_c[E], dx_c[E];
  float2 of = make_float2(0.0f, 0.0f);  // the sums of g and of g * xhat
  for (int c = first; c < C; c += step) {
    Packed<T, E>::load(dy + c).get(dy_c);
    Packed<T, E>::load(x + c).get(x_c);
    Packed<T, E>::load(weight + c).get(w_c);
#pragma unroll
    for (int e = 0; e < E; e++) {
      const float g = dy_c[e] * w_c[e];
      of.x += g;
      of.y += g * ((x_c[e] - m - shift) * rs);
    }
  }
  const float mean_g = block_sum(of.x) / C, mean_gx = block_sum(of.y) / C;
  for (int c = first; c < C; c += step) {
    Packed<T, E>::load(dy + c).get(dy_c);
    Packed<T, E>::load(x + c).get(x_c);
    Packed<T, E>::load(weight + c).get(w_c);
    if (DR) Packed<T, E>::load(dr + row * C + c).get(dx_c);
#pragma unroll
    for (int e = 0; e < E; e++) {
      const float xhat = (x_c[e] - m - shift) * rs;
      const float through = (dy_c[e] * w_c[e] - mean_g - xhat * mean_gx) * rs;
      dx_c[e] = DR ? dx_c[e] + through : through;
    }
    Packed<T, E> pack;
    pack.set(dx_c);
    pack.store(dx + row * C + c);
  }
}

// shifts[row] = the mean of x - mean over the row.
template <class T, int E>
__device__ __forceinline__ void wide_shift(float* shifts, const T* x, const float* mean, int C) {
  const index_t row = blockIdx.x;
  float sum = 0.0f, v[E];
  for (int c = threadIdx.x * E; c < C; c += blockDim.x * E) {
    Packed<T, E>::load(x + row * C + c).get(v);
#pragma unroll
    for (int e = 0; e < E; e++) sum += v[e] - mean[row];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) shifts[row] = sum / C;
}

// Stage one of dweight and dbias: a thread owns E columns and every gridDim.y-th row. partials is (gridDim.y, 2, C).
template <class T, int E>
__device__ __forceinline__ void wide_column_sums(float* partials, const float* shifts, const T* dy, const T* x,
                                                 const float* mean, const float* rstd, index_t N, int C) {
  const index_t c = (static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x) * E;
  if (c >= C) return;
  float dy_c[E], x_c[E], dweight[E] = {}, dbias[E] = {};
  for (index_t row = blockIdx.y; row < N; row += gridDim.y) {
    Packed<T, E>::load(dy + row * C + c).get(dy_c);
    Packed<T, E>::load(x + row * C + c).get(x_c);
#pragma unroll
    for (int e = 0; e < E; e++) {
      dweight[e] += dy_c[e] * ((x_c[e] - mean[row] - shifts[row]) * rstd[row]);
      dbias[e] += dy_c[e];
    }
  }
  float* partial = partials + static_cast<index_t>(blockIdx.y) * 2 * C + c;
#pragma unroll
  for (int e = 0; e < E; e++) {
    partial[e] = dweight[e];
    partial[C + e] = dbias[e];
  }
}
