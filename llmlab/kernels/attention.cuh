// What the attention kernels share: where a block works, and how 16-bit rows become operands of tensor cores.
#pragma once
#include "tensor_core.cuh"

// The rows of one head: D contiguous numbers each, `stride` apart.
template <class T> struct Head {
  T* start;
  int stride, length;
  __device__ __forceinline__ T* row(int i) const { return start + static_cast<index_t>(i) * stride; }
};

// Blocks are numbered so that those of one head are neighbours: its keys and values stay in the L2 cache.
template <int D> struct Place {
  index_t head;  // b H + h
  index_t b, h;
  int width, tile, tiles, rows, length;

  // The sequence is cut into tiles of `rows` rows, one for each block.
  __device__ __forceinline__ Place(int heads, int length, int rows) : rows(rows), length(length) {
    tiles = (length + rows - 1) / rows;
    head = blockIdx.x / tiles;
    tile = blockIdx.x % tiles;
    b = head / heads;
    h = head % heads;
    width = heads * D;
  }

  // First row of the block's tile where tiles are taken from the end: late queries see the most keys, and go first.
  __device__ __forceinline__ int last_tile_first() const { return (tiles - 1 - tile) * rows; }

  // In a packed array (B, T, 3, H, D), and in a plain one (B, T, H, D).
  template <class T> __device__ __forceinline__ Head<T> packed(T* qkv, int which) const {
    return {qkv + (b * length * 3 + which) * width + h * D, 3 * width, length};
  }
  template <class T> __device__ __forceinline__ Head<T> queries(T* qkv) const { return packed(qkv, 0); }
  template <class T> __device__ __forceinline__ Head<T> keys(T* qkv) const { return packed(qkv, 1); }
  template <class T> __device__ __forceinline__ Head<T> values(T* qkv) const { return packed(qkv, 2); }
  template <class T> __device__ __forceinline__ Head<T> plain(T* y) const {
    return {y + b * length * width + h * D, width, length};
  }
};

__device__ __forceinline__ int lane() { return threadIdx.x % WARP; }

// Rows of D 16-bit numbers are filled with zeros up to the depth of an mma.
template <int D> constexpr int PADDED = (D + 15) / 16 * 16;

// Two neighbouring accumulators (16 x 8 each) are, register by register, a left operand (16 x 16).
template <class T>
__device__ __forceinline__ void to_operand(unsigned (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = pair<T>(left[0], left[1]);
  a[1] = pair<T>(left[2], left[3]);
  a[2] = pair<T>(right[0], right[1]);
  a[3] = pair<T>(right[2], right[3]);
}

// Where element (row, column) lies in a tile of ROWS rows in shared memory: said by what multiplies.
template <int D, int ROWS> __device__ __forceinline__ int place_in_tile(int row, int column);

// Begins the copy of rows first, first + 1, ... into a tile of shared memory; what does not exist becomes zero.
template <int D, int ROWS, int THREADS, class T>
__device__ __forceinline__ void copy_tile(T* tile, Head<const T> head, int first) {
  constexpr int PIECES = PADDED<D> / 8, STEP = THREADS / PIECES;
  const int row = threadIdx.x / PIECES, column = threadIdx.x % PIECES * 8;
  const int length = column < D ? head.length : 0;  // columns that only fill up have no rows
#pragma unroll
  for (int i = 0; i < ROWS; i += STEP)
    if ((THREADS % PIECES == 0 || row < STEP) && (ROWS % STEP == 0 || row + i < ROWS))
      cp_async(tile + place_in_tile<D, ROWS>(row + i, column), head.row(first + row + i) + column,
               first + row + i < length);
}

// 16 M rows as left operands: a[m][k] holds rows 16 m.. and columns 16 k..
template <int D, int M, class T>
__device__ __forceinline__ void load_operand(unsigned (&a)[M][PADDED<D> / 16][4], Head<const T> head, int first) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int k = 0; k < PADDED<D> / 16; k++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = first + 16 * m + i % 2 * 8 + lane() / 4, column = 16 * k + i / 2 * 8 + lane() % 4 * 2;
        const bool exists = row < head.length && column < D;
        a[m][k][i] = exists ? *reinterpret_cast<const unsigned*>(head.row(row) + column) : 0;
      }
}
