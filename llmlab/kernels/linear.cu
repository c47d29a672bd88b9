// The bias of a linear layer, beside the matrix product that cuBLAS does:  y += bias.
//
// Traffic: y read once and written once; bias once for each group of rows.
// Launch: tiles of columns in x, groups of rows in y; a thread keeps its part of bias in registers and walks down the rows.
#include "row.cuh"

constexpr int AHEAD = 4;  // rows whose loads are under way together

template <class T, int E>
__global__ void __launch_bounds__(256) add_bias(T* y, const T* bias, index_t N, index_t C) {
  const index_t c = (static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x) * E;
  if (c >= C) return;
  float b[E], v[E];
  Packed<T, E>::load(bias + c).get(b);
  const index_t step = static_cast<index_t>(gridDim.y) * blockDim.y;
  for (index_t row = static_cast<index_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < N; row += AHEAD * step) {
    Packed<T, E> pack[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++)
      if (row + a * step < N) pack[a] = Packed<T, E>::load(y + (row + a * step) * C + c);
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (row + a * step >= N) break;
      pack[a].get(v);
#pragma unroll
      for (int e = 0; e < E; e++) v[e] += b[e];
      pack[a].set(v);
      pack[a].store(y + (row + a * step) * C + c);
    }
  }
}
