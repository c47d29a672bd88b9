// Sums over the rows of a matrix, in two stages: the gradients of biases and of LayerNorm's parameters.
//
// Stage one leaves a few rows of partial sums (column_sums here, or another kernel on its way through the data); stage two
// adds those to the gradient. Traffic: the matrix once, plus 8 bytes a partial sum. Deterministic: both stages add in an
// order that only the launch shape decides.
#include "row.cuh"

constexpr int AHEAD = 8;  // rows whose loads are under way together

// partials (gridDim.y, C): block (., y) adds the rows y * blockDim.y + threadIdx.y, and on in steps of the grid's height.
// Block: 32 columns of threads, E elements each; blockDim.y rows.
template <class T, int E>
__global__ void __launch_bounds__(256) column_sums(float* partials, const T* x, index_t N, index_t C) {
  __shared__ float sums[8][E][WARP];
  const index_t c = (static_cast<index_t>(blockIdx.x) * WARP + threadIdx.x) * E;
  const index_t step = static_cast<index_t>(gridDim.y) * blockDim.y;
  float sum[E] = {}, v[E];
  for (index_t row = static_cast<index_t>(blockIdx.y) * blockDim.y + threadIdx.y; c < C && row < N; row += AHEAD * step) {
    Packed<T, E> pack[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++)
      if (row + a * step < N) pack[a] = Packed<T, E>::load(x + (row + a * step) * C + c);
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (row + a * step >= N) break;
      pack[a].get(v);
#pragma unroll
      for (int e = 0; e < E; e++) sum[e] += v[e];
    }
  }
#pragma unroll
  for (int e = 0; e < E; e++) sums[threadIdx.y][e][threadIdx.x] = sum[e];
  __syncthreads();
  // Row y of the block holds the sums of its rows; element e of all 32 threads is now added over y by row e % blockDim.y.
  for (int e = threadIdx.y; e < E; e += blockDim.y) {
    float total = 0.0f;
    for (int y = 0; y < static_cast<int>(blockDim.y); y++) total += sums[y][e][threadIdx.x];
    if (c < C) partials[static_cast<index_t>(blockIdx.y) * C + c + e] = total;
  }
}

// gradient[i][c] += the sum over p of partials[p][i][c], for the up to three gradients i = blockIdx.y of partials (P, S, C).
// A block of 32 x 32 adds 32 columns: each warp reads 128 bytes of one row at a time, and takes every 32nd row.
extern "C" __global__ void __launch_bounds__(1024)
add_partials(float* gradient_0, float* gradient_1, float* gradient_2, const float* partials, int P, int S, index_t C) {
  __shared__ float sums[WARP][WARP + 1];  // one column of padding: the transposed read meets 32 different banks
  float* gradient = blockIdx.y == 0 ? gradient_0 : blockIdx.y == 1 ? gradient_1 : gradient_2;
  const index_t c = static_cast<index_t>(blockIdx.x) * WARP + threadIdx.x;
  float sum = 0.0f;
  if (c < C)
    for (index_t p = threadIdx.y; p < P; p += WARP) sum += partials[(p * S + blockIdx.y) * C + c];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Lane i of warp j takes the i-th partial sum of column j; after the sum, every lane of warp j holds column j's total.
  const float total = warp_sum(sums[threadIdx.x][threadIdx.y]);
  const index_t column = static_cast<index_t>(blockIdx.x) * WARP + threadIdx.y;
  if (threadIdx.x == 0 && column < C) gradient[column] += total;
}
