// The ladder of chapters/05-layernorm.md: LayerNorm from the plainest kernel up, one idea a rung. Training uses layernorm.cu.
//
// Forward: thread_forward, warp_forward, register_forward. Backward: warp_dx with column_sums_of_dy, then fused_backward.
// Traffic: the plain rungs read x three times; register_forward reads x once and writes y once; fused_backward reads dy and x
//   once, writes dx once, and leaves gridDim.x * 2 * C floats of partial sums to add_partials in column_sum.cu.
// Deterministic: every sum is added in an order that only the launch shape decides; no atomics.
#include "common.cuh"

// ---- Rung 1: a thread takes a row, as one would write it in C.

template <class T>
__global__ void thread_forward(
    T* y, float* mean, float* rstd, const T* x, const T* weight,
    const T* bias, index_t N, int C, float eps) {
  index_t n = index_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= N) return;
  const T* row = x + n * C;

  float m = 0, v = 0;
  for (int c = 0; c < C; c++) m += to_float(row[c]);
  m /= C;
  for (int c = 0; c < C; c++) {
    float d = to_float(row[c]) - m;
    v += d * d;
  }
  float rs = rsqrtf(v / C + eps);
  for (int c = 0; c < C; c++) {
    float xhat = (to_float(row[c]) - m) * rs;
    y[n * C + c] = from_float<T>(
        xhat * to_float(weight[c]) + to_float(bias[c]));
  }
  mean[n] = m;
  rstd[n] = rs;
}

// ---- Rung 2: a warp takes a row. Neighbours in the warp read neighbours in memory, and add up by shuffles.

template <class T>
__global__ void warp_forward(
    T* y, float* mean, float* rstd, const T* x, const T* weight,
    const T* bias, index_t N, int C, float eps) {
  index_t n = (index_t(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
  int lane = threadIdx.x % WARP;
  if (n >= N) return;  // whole warps leave, so shuffles stay complete
  const T* row = x + n * C;

  float m = 0, v = 0;
  for (int c = lane; c < C; c += WARP) m += to_float(row[c]);
  m = warp_sum(m) / C;  // all 32 lanes hold the mean
  for (int c = lane; c < C; c += WARP) {
    float d = to_float(row[c]) - m;
    v += d * d;
  }
  float rs = rsqrtf(warp_sum(v) / C + eps);  // and all hold rstd
  for (int c = lane; c < C; c += WARP) {
    float xhat = (to_float(row[c]) - m) * rs;
    y[n * C + c] = from_float<T>(
        xhat * to_float(weight[c]) + to_float(bias[c]));
  }
  if (lane == 0) {
    mean[n] = m;
    rstd[n] = rs;
  }
}

// ---- Rung 3: packs of 16 bytes, and the row stays in registers from one pass to the next: x is read once. A lane holds
// K packs of E elements, those at columns (k * 32 + lane) * E; K is a constant, so that they can be registers.

template <class T, int K>
__global__ void register_forward(
    T* y, float* mean, float* rstd, const T* x, const T* weight,
    const T* bias, index_t N, int C, float eps) {
  constexpr int E = Pack<T>::size;
  index_t n = (index_t(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
  int lane = threadIdx.x % WARP;
  if (n >= N) return;

  float row[K][E], m = 0, v = 0;
#pragma unroll
  for (int k = 0; k < K; k++) {
    int c = (k * WARP + lane) * E;
    if (c < C) unpack(row[k], load_pack(x + n * C + c));
    for (int e = 0; c < C && e < E; e++) m += row[k][e];
  }
  m = warp_sum(m) / C;
#pragma unroll
  for (int k = 0; k < K; k++) {
    int c = (k * WARP + lane) * E;
    for (int e = 0; c < C && e < E; e++) {
      row[k][e] -= m;
      v += row[k][e] * row[k][e];
    }
  }
  float rs = rsqrtf(warp_sum(v) / C + eps), w[E], b[E];
#pragma unroll
  for (int k = 0; k < K; k++) {
    int c = (k * WARP + lane) * E;
    if (c >= C) continue;
    unpack(w, load_pack(weight + c));
    unpack(b, load_pack(bias + c));
    for (int e = 0; e < E; e++) row[k][e] = row[k][e] * rs * w[e] + b[e];
    Pack<T> pack;
    repack(pack, row[k]);
    store_pack(y + n * C + c, pack);
  }
  if (lane == 0) {
    mean[n] = m;
    rstd[n] = rs;
  }
}

// ---- Rung 4: the backward pass as two kernels. dx goes along the rows, dweight and dbias down the columns, and each
// kernel reads dy and x for itself.

template <class T>
__global__ void warp_dx(
    T* dx, const T* dy, const T* x, const T* weight,
    const float* mean, const float* rstd, index_t N, int C) {
  index_t n = (index_t(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
  int lane = threadIdx.x % WARP;
  if (n >= N) return;
  float m = mean[n], rs = rstd[n], along_one = 0, along_xhat = 0;

  for (int c = lane; c < C; c += WARP) {
    float xhat = (to_float(x[n * C + c]) - m) * rs;
    float dxhat = to_float(dy[n * C + c]) * to_float(weight[c]);
    along_one += dxhat;
    along_xhat += dxhat * xhat;
  }
  along_one = warp_sum(along_one) / C;
  along_xhat = warp_sum(along_xhat) / C;
  for (int c = lane; c < C; c += WARP) {
    float xhat = (to_float(x[n * C + c]) - m) * rs;
    float dxhat = to_float(dy[n * C + c]) * to_float(weight[c]);
    dx[n * C + c] = from_float<T>(
        rs * (dxhat - along_one - xhat * along_xhat));
  }
}

template <class T>
__global__ void column_sums_of_dy(
    float* dweight, float* dbias, const T* dy, const T* x,
    const float* mean, const float* rstd, index_t N, int C) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= C) return;
  float of_dy_xhat = 0, of_dy = 0;
  for (index_t n = 0; n < N; n++) {
    float d = to_float(dy[n * C + c]);
    of_dy_xhat += d * (to_float(x[n * C + c]) - mean[n]) * rstd[n];
    of_dy += d;
  }
  dweight[c] = of_dy_xhat;
  dbias[c] = of_dy;
}

// ---- Rung 5: one kernel reads dy and x once. While a row is in registers for dx, its part of dweight and dbias is added to
// sums that stay in registers from row to row. Stage one of those sums ends here, with a row of 2 * C floats a block.

template <class T, int K>
__global__ void fused_backward(
    T* dx, float* partials, const T* dy, const T* x, const T* weight,
    const float* mean, const float* rstd, index_t N, int C) {
  constexpr int E = Pack<T>::size;
  extern __shared__ float total[];  // (2, C): dweight and dbias of the block
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int warps = blockDim.x / WARP;
  float dweight[K][E] = {}, dbias[K][E] = {};

  index_t step = index_t(gridDim.x) * warps;
  for (index_t n = index_t(blockIdx.x) * warps + warp; n < N; n += step) {
    float m = mean[n], rs = rstd[n], along_one = 0, along_xhat = 0;
    float xhat[K][E], dxhat[K][E], w[E];
#pragma unroll
    for (int k = 0; k < K; k++) {
      int c = (k * WARP + lane) * E;
      if (c >= C) continue;
      unpack(xhat[k], load_pack(x + n * C + c));
      unpack(dxhat[k], load_pack(dy + n * C + c));
      unpack(w, load_pack(weight + c));
      for (int e = 0; e < E; e++) {
        xhat[k][e] = (xhat[k][e] - m) * rs;
        dweight[k][e] += dxhat[k][e] * xhat[k][e];  // still dy here
        dbias[k][e] += dxhat[k][e];
        dxhat[k][e] *= w[e];
        along_one += dxhat[k][e];
        along_xhat += dxhat[k][e] * xhat[k][e];
      }
    }
    along_one = warp_sum(along_one) / C;
    along_xhat = warp_sum(along_xhat) / C;
#pragma unroll
    for (int k = 0; k < K; k++) {
      int c = (k * WARP + lane) * E;
      if (c >= C) continue;
      for (int e = 0; e < E; e++)
        dxhat[k][e] = rs * (dxhat[k][e] - along_one - xhat[k][e] * along_xhat);
      Pack<T> pack;
      repack(pack, dxhat[k]);
      store_pack(dx + n * C + c, pack);
    }
  }

  for (int turn = 0; turn < warps; turn++) {  // the warps add in turn
#pragma unroll
    for (int k = 0; k < K; k++) {
      int c = (k * WARP + lane) * E;
      for (int e = 0; turn == warp && c < C && e < E; e++) {
        total[c + e] = (turn ? total[c + e] : 0) + dweight[k][e];
        total[C + c + e] = (turn ? total[C + c + e] : 0) + dbias[k][e];
      }
    }
    __syncthreads();
  }
  for (int c = threadIdx.x; c < 2 * C; c += blockDim.x)
    partials[index_t(blockIdx.x) * 2 * C + c] = total[c];
}
