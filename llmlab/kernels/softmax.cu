// Softmax along rows:  y = exp(x - m) / sum exp(x - m),  m = max x;  backward  dx = y (dy - sum dy y).
// Every element is read once and written once: between the reduction and the result a row waits on the chip, a short
// one in the registers of a warp, a long one in the shared memory of a block.
#include "common.cuh"

// ---- A warp a row: PACKS packs for each lane, in registers. No barrier; the warps of a block do not know each other.

// v[j] = the j-th pack of this lane; a row that starts off a 16-byte boundary has its packs shifted to boundaries.
template <bool ALIGNED, int PACKS, class T>
__device__ __forceinline__ void load_lane(float (&v)[PACKS][Pack<T>::size], const T* row, index_t first, int C, float outside) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int j = 0; j < PACKS; j++) {
    const int i = first + (j * WARP + lane) * Pack<T>::size;
    if (i < C) {
      load_row<ALIGNED>(v[j], row, i, C, outside);
    } else {
#pragma unroll
      for (int k = 0; k < Pack<T>::size; k++) v[j][k] = outside;
    }
  }
}

template <bool ALIGNED, int PACKS, class T>
__device__ __forceinline__ void store_lane(T* row, index_t first, int C, const float (&v)[PACKS][Pack<T>::size]) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int j = 0; j < PACKS; j++) {
    const int i = first + (j * WARP + lane) * Pack<T>::size;
    if (i < C) store_row<ALIGNED>(row, i, C, v[j]);
  }
}

template <class T, int PACKS, bool ALIGNED>
__global__ void __launch_bounds__(128) softmax_forward_warp(T* y, const T* x, index_t N, int C) {
  const index_t n = static_cast<index_t>(blockIdx.x) * (blockDim.x / WARP) + threadIdx.x / WARP;
  if (n >= N) return;
  const index_t first = ALIGNED ? 0 : first_pack(x + n * C);
  float v[PACKS][Pack<T>::size];
  load_lane<ALIGNED>(v, x + n * C, first, C, negative_infinity());  // exp of what is outside the row will be 0

  float m = negative_infinity();
#pragma unroll
  for (int j = 0; j < PACKS; j++)
#pragma unroll
    for (int k = 0; k < Pack<T>::size; k++) m = fmaxf(m, v[j][k]);
  m = warp_max(m);

  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < PACKS; j++)
#pragma unroll
    for (int k = 0; k < Pack<T>::size; k++) sum += v[j][k] = __expf(v[j][k] - m);
  const float scale = 1.0f / warp_sum(sum);

#pragma unroll
  for (int j = 0; j < PACKS; j++)
#pragma unroll
    for (int k = 0; k < Pack<T>::size; k++) v[j][k] *= scale;
  store_lane<ALIGNED>(y + n * C, first, C, v);
}

template <class T, int PACKS, bool ALIGNED>
__global__ void __launch_bounds__(128) softmax_backward_warp(T* dx, const T* dy, const T* y, index_t N, int C) {
  const index_t n = static_cast<index_t>(blockIdx.x) * (blockDim.x / WARP) + threadIdx.x / WARP;
  if (n >= N) return;
  const index_t first = ALIGNED ? 0 : first_pack(y + n * C);
  float g[PACKS][Pack<T>::size], v[PACKS][Pack<T>::size];
  load_lane<ALIGNED>(g, dy + n * C, first, C, 0.0f);
  load_lane<ALIGNED>(v, y + n * C, first, C, 0.0f);

  float dot = 0.0f;
#pragma unroll
  for (int j = 0; j < PACKS; j++)
#pragma unroll
    for (int k = 0; k < Pack<T>::size; k++) dot += g[j][k] * v[j][k];
  dot = warp_sum(dot);

#pragma unroll
  for (int j = 0; j < PACKS; j++)
#pragma unroll
    for (int k = 0; k < Pack<T>::size; k++) g[j][k] = v[j][k] * (g[j][k] - dot);
  store_lane<ALIGNED>(dx + n * C, first, C, g);
}

// ---- A block a row: packs are dealt out to the threads in turn. Each thread lays its own packs aside in shared memory
// and is the only one to read them back, so no barrier stands between. Of a row that is too long for shared memory the
// rest is read again, most likely from the L2.

constexpr int IN_FLIGHT = 4;  // packs whose loads a thread starts before it uses the first

// The sum of exp(v - m) over what a thread has seen so far, m being the maximum so far. A larger m later rescales the
// sum, so one reading is enough (Milakov and Gimelshein, 2018).
struct Running {
  float m = negative_infinity(), sum = 0.0f;

  template <int size> __device__ __forceinline__ void see(const float (&v)[size]) {
    float larger = m;
#pragma unroll
    for (int k = 0; k < size; k++) larger = fmaxf(larger, v[k]);
    if (larger == negative_infinity()) return;  // nothing but -infinity: -infinity minus itself would be NaN
    sum *= __expf(m - larger);
#pragma unroll
    for (int k = 0; k < size; k++) sum += __expf(v[k] - larger);
    m = larger;
  }
};

// Calls visit(i, j): the row's elements from i on are the j-th pack of this thread. IN_FLIGHT calls to load come before
// those to use.
template <int size, class Load, class Use>
__device__ __forceinline__ void for_each_pack(index_t first, int C, Load load, Use use) {
  const int step = blockDim.x * size;
  for (index_t i = first + threadIdx.x * size; i < C; i += IN_FLIGHT * step) {
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++)
      if (i + u * step < C) load(u, i + u * step);
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++)
      if (i + u * step < C) use(u, i + u * step);
  }
}

// `kept`: how many packs of the row fit the shared memory given.
template <class T, bool ALIGNED>
__global__ void __launch_bounds__(512) softmax_forward_block(T* y, const T* x, int C, int kept) {
  constexpr int size = Pack<T>::size;
  extern __shared__ __align__(16) unsigned char shared[];
  Pack<T>* keep = reinterpret_cast<Pack<T>*>(shared);
  const T* row = x + static_cast<index_t>(blockIdx.x) * C;
  T* y_row = y + static_cast<index_t>(blockIdx.x) * C;
  const index_t first = ALIGNED ? 0 : first_pack(row);
  float v[IN_FLIGHT][size];

  Running running;
  for_each_pack<size>(
      first, C, [&](int u, index_t i) { load_row<ALIGNED>(v[u], row, i, C, negative_infinity()); },
      [&](int u, index_t i) {
        running.see(v[u]);
        const int p = (i - first) / size;
        if (p < kept) repack(keep[p], v[u]);
      });
  const float m = block_max(running.m);
  const float scale = 1.0f / block_sum(running.sum * __expf(running.m - m));

  for_each_pack<size>(
      first, C,
      [&](int u, index_t i) {
        const int p = (i - first) / size;
        if (p < kept) {
          unpack<T>(v[u], keep[p]);
        } else {
          load_row<ALIGNED>(v[u], row, i, C, negative_infinity());
        }
      },
      [&](int u, index_t i) {
#pragma unroll
        for (int k = 0; k < size; k++) v[u][k] = __expf(v[u][k] - m) * scale;
        store_row<ALIGNED>(y_row, i, C, v[u]);
      });
}

template <class T, bool ALIGNED>
__global__ void __launch_bounds__(512) softmax_backward_block(T* dx, const T* dy, const T* y, int C, int kept) {
  constexpr int size = Pack<T>::size;
  extern __shared__ __align__(16) unsigned char shared[];
  Pack<T>* keep = reinterpret_cast<Pack<T>*>(shared);  // kept packs of y, then kept packs of dy
  const index_t start = static_cast<index_t>(blockIdx.x) * C;
  const index_t first = ALIGNED ? 0 : first_pack(y + start);
  float g[IN_FLIGHT][size], v[IN_FLIGHT][size];

  float dot = 0.0f;
  for_each_pack<size>(
      first, C,
      [&](int u, index_t i) {
        load_row<ALIGNED>(v[u], y + start, i, C, 0.0f);
        load_row<ALIGNED>(g[u], dy + start, i, C, 0.0f);
      },
      [&](int u, index_t i) {
#pragma unroll
        for (int k = 0; k < size; k++) dot += g[u][k] * v[u][k];
        const int p = (i - first) / size;
        if (p < kept) {
          repack(keep[p], v[u]);
          repack(keep[kept + p], g[u]);
        }
      });
  dot = block_sum(dot);

  for_each_pack<size>(
      first, C,
      [&](int u, index_t i) {
        const int p = (i - first) / size;
        if (p < kept) {
          unpack<T>(v[u], keep[p]);
          unpack<T>(g[u], keep[kept + p]);
        } else {
          load_row<ALIGNED>(v[u], y + start, i, C, 0.0f);
          load_row<ALIGNED>(g[u], dy + start, i, C, 0.0f);
        }
      },
      [&](int u, index_t i) {
#pragma unroll
        for (int k = 0; k < size; k++) g[u][k] = v[u][k] * (g[u][k] - dot);
        store_row<ALIGNED>(dx + start, i, C, g[u]);
      });
}
