// Attention's tiles and products for one warpgroup (four warps, 64 rows): wgmma, which reads its right operand from
// shared memory by itself, once for 64 rows where mma.sync and ldmatrix read it once for 16. Compute capability 9.0.
#pragma once
#include "attention.cuh"
#include "warpgroup.cuh"

// The rows that one collective product covers: what is left out for lying in the future is left out by all of them.
template <int M> constexpr int GROUP_ROWS = 64;

template <int D, int ROWS> constexpr int TILE_SIZE = ROWS * ((PADDED<D> + 63) / 64 * 64);
template <int D, int ROWS> __device__ __forceinline__ int place_in_tile(int row, int column) {
  return swizzled<ROWS>(row, column);
}

__device__ __forceinline__ void wait_for_tile() {
  cp_async_wait<0>();
  show_to_wgmma();
  __syncthreads();
}

// s = a tileᵀ, of the tile's 8 N rows from `row` on. Runs on until finish_products.
template <int D, int ROWS, int M, int N, class T>
__device__ __forceinline__ void multiply_transposed(float (&s)[M][N][4], const unsigned (&a)[M][PADDED<D> / 16][4],
                                                    const T* tile, int row) {
  static_assert(M == 1, "the four warps of a warpgroup own 16 rows each");
  constexpr int STEP = N < 8 ? N : 8;
  wgmma_begin(s);
#pragma unroll
  for (int n = 0; n < N; n += STEP)
#pragma unroll
    for (int k = 0; k < PADDED<D> / 16; k++)
      wgmma<true, ROWS>(part<STEP>(s[0], n), a[0][k], tile, row + 8 * n, 16 * k, k > 0);
}

// The 64 rows of a warpgroup as a left operand that stays: in shared memory, so that registers are left for dk and dv.
// ROOM: the shared memory it takes of the block.
template <class T, int D, int M, int ROWS, int THREADS> struct Rows {
  static constexpr int ROOM = TILE_SIZE<D, ROWS>;
  const T* tile;
  __device__ __forceinline__ Rows(T* room, Head<const T> head, int block_first) : tile(room) {
    copy_tile<D, ROWS, THREADS>(room, head, block_first);
  }
};
template <int D, int ROWS, int M, int N, class T, int OWN, int THREADS>
__device__ __forceinline__ void multiply_transposed(float (&s)[M][N][4], const Rows<T, D, M, OWN, THREADS>& rows,
                                                    const T* tile, int row) {
  static_assert(M == 1 && N == 4, "sᵀ is taken in steps of 32 queries");
  wgmma_begin(s);
#pragma unroll
  for (int k = 0; k < PADDED<D> / 16; k++)
    wgmma<true, OWN, ROWS>(s[0], rows.tile, threadIdx.x / 128 * 64, 16 * k, tile, row, 16 * k, k > 0);
}

// c += p tile, with the tile's 8 N rows from `row` on. p comes as the accumulator that it was. Runs on likewise.
template <int D, int ROWS, int M, int N, class T>
__device__ __forceinline__ void add_product(float (&c)[M][PADDED<D> / 8][4], const float (&p)[M][N][4], const T* tile,
                                            int row) {
  constexpr int WHOLE = PADDED<D> / 64 * 8, REST = PADDED<D> % 64 / 8;
  unsigned a[N / 2][4];
#pragma unroll
  for (int k = 0; k < N / 2; k++) to_operand<T>(a[k], p[0][2 * k], p[0][2 * k + 1]);
  wgmma_begin(a, c);
#pragma unroll
  for (int k = 0; k < N / 2; k++) {
#pragma unroll
    for (int n = 0; n < WHOLE; n += 8) wgmma<false, ROWS>(part<8>(c[0], n), a[k], tile, row + 16 * k, 8 * n, true);
    if constexpr (REST == 6) {  // wgmma comes with N of 16, 32 and 64 here
      wgmma<false, ROWS>(part<4>(c[0], WHOLE), a[k], tile, row + 16 * k, 8 * WHOLE, true);
      wgmma<false, ROWS>(part<2>(c[0], WHOLE + 4), a[k], tile, row + 16 * k, 8 * WHOLE + 32, true);
    } else if constexpr (REST > 0) {
      wgmma<false, ROWS>(part<REST>(c[0], WHOLE), a[k], tile, row + 16 * k, 8 * WHOLE, true);
    }
  }
}

template <class... Accumulators> __device__ __forceinline__ void finish_products(Accumulators&... c) { wgmma_finish(c...); }
