// Attention's tiles and products for one warp: mma.sync, operands through ldmatrix. For GPUs from compute capability 8.0.
#pragma once
#include "attention.cuh"
#include "tensor_core.cuh"

// The rows that one collective product covers: what is left out for lying in the future is left out by all of them.
template <int M> constexpr int GROUP_ROWS = 16 * M;

// A row of a tile is padded by 16 bytes, so that eight rows begin in eight different groups of banks: ldmatrix then
// meets no bank conflict.
template <int D> constexpr int STRIDE = PADDED<D> + 8;
template <int D, int ROWS> constexpr int TILE_SIZE = ROWS * STRIDE<D>;
template <int D, int ROWS> __device__ __forceinline__ int place_in_tile(int row, int column) {
  return row * STRIDE<D> + column;
}

__device__ __forceinline__ void wait_for_tile() {
  cp_async_wait<0>();
  __syncthreads();
}

// s = a tileᵀ, of the tile's 8 N rows from `row` on.
template <int D, int ROWS, int M, int N, class T>
__device__ __forceinline__ void multiply_transposed(float (&s)[M][N][4], const unsigned (&a)[M][PADDED<D> / 16][4],
                                                    const T* tile, int row) {
  const T* source = tile + (row + lane() / 16 * 8 + lane() % 8) * STRIDE<D> + lane() / 8 % 2 * 8;
#pragma unroll
  for (int n = 0; n < N; n += 2) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < 4; i++) s[m][n][i] = s[m][n + 1][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < PADDED<D> / 16; k++) {
      unsigned b[4];
      ldmatrix_x4(b, source + 8 * n * STRIDE<D> + 16 * k);
      const unsigned left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma_m16n8k16<T>(s[m][n], a[m][k], left);
        mma_m16n8k16<T>(s[m][n + 1], a[m][k], right);
      }
    }
  }
}

// The 16 M rows of a warp as a left operand that stays: in registers. ROOM: the shared memory it takes of the block.
template <class T, int D, int M, int ROWS, int THREADS> struct Rows {
  static constexpr int ROOM = 0;
  unsigned a[M][PADDED<D> / 16][4];
  __device__ __forceinline__ Rows(T*, Head<const T> head, int block_first) {
    load_operand<D>(a, head, block_first + threadIdx.x / WARP * 16 * M);
  }
};
template <int D, int ROWS, int M, int N, class T, int OWN, int THREADS>
__device__ __forceinline__ void multiply_transposed(float (&s)[M][N][4], const Rows<T, D, M, OWN, THREADS>& rows,
                                                    const T* tile, int row) {
  multiply_transposed<D, ROWS>(s, rows.a, tile, row);
}

// c += p tile, with the tile's 8 N rows from `row` on. p comes as the accumulator that it was.
template <int D, int ROWS, int M, int N, class T>
__device__ __forceinline__ void add_product(float (&c)[M][PADDED<D> / 8][4], const float (&p)[M][N][4], const T* tile,
                                            int row) {
  const T* source = tile + (row + lane() / 8 % 2 * 8 + lane() % 8) * STRIDE<D> + lane() / 16 * 8;
#pragma unroll
  for (int k = 0; k < N / 2; k++) {
    unsigned a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) to_operand<T>(a[m], p[m][2 * k], p[m][2 * k + 1]);
#pragma unroll
    for (int n = 0; n < PADDED<D> / 8; n += 2) {
      unsigned b[4];
      ldmatrix_x4_trans(b, source + 16 * k * STRIDE<D> + 8 * n);
      const unsigned left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma_m16n8k16<T>(c[m][n], a[m], left);
        mma_m16n8k16<T>(c[m][n + 1], a[m], right);
      }
    }
  }
}

// mma.sync is done when it returns.
template <class... Accumulators> __device__ __forceinline__ void finish_products(Accumulators&...) {}
