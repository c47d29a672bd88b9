// Hopper's matrix product of a warpgroup, wgmma, and what it asks of registers and shared memory. PTX on a GPU; on a CPU
// the same products by the emulator's mma of a warp.
#pragma once
#include "tensor_core.cuh"

// ---- A tile of ROWS rows lies in panels of 64 columns. In a panel a row is 128 bytes, and its eight 16-byte pieces stand
// in an order that depends on the row (piece ^ row % 8), so that eight rows of one piece fall into eight different groups
// of banks. wgmma calls this the 128-byte swizzle; panels have to begin on multiples of 1024 bytes.
template <int ROWS> __device__ __forceinline__ int swizzled(int row, int column) {
  return column / 64 * ROWS * 64 + row * 64 + ((column % 64 / 8) ^ (row % 8)) * 8 + column % 8;
}

// ---- wgmma runs beside the warps that started it. Between start and finish nobody may touch its registers, which the
// compiler does not know: so their values are pinned, settled before the first product and unused until after the last.

#ifdef LLMLAB_EMULATED
template <class Value> __device__ __forceinline__ void pin(Value&) {}
#else
__device__ __forceinline__ void pin(float& x) { asm volatile("" : "+f"(x)::"memory"); }
__device__ __forceinline__ void pin(unsigned& x) { asm volatile("" : "+r"(x)::"memory"); }
template <class Value, int N> __device__ __forceinline__ void pin(Value (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) pin(x[i]);
}
#endif

template <class... Registers> __device__ __forceinline__ void wgmma_begin(Registers&... registers) {
  (pin(registers), ...);
#ifndef LLMLAB_EMULATED
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

template <class... Registers> __device__ __forceinline__ void wgmma_finish(Registers&... registers) {
#ifndef LLMLAB_EMULATED
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
  (pin(registers), ...);
}

// Makes what this thread has written to shared memory visible to wgmma, which reads it by another way than loads do.
__device__ __forceinline__ void show_to_wgmma() {
#ifndef LLMLAB_EMULATED
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// COUNT of the accumulators' column tiles, from the n-th on.
template <int COUNT, int N> __device__ __forceinline__ float (&part(float (&d)[N][4], int n))[COUNT][4] {
  return *reinterpret_cast<float (*)[COUNT][4]>(&d[n]);
}

// ---- d = a b, or d += a b if `add`. a is 64 x 16, 16 rows in each warp; d is 64 x 8 N likewise; both are spread over the
// lanes as in mma_m16n8k16. b (16 x 8 N) stands in a tile: b[k][n] = tile[row + n][column + k] if TRANSPOSED, else
// tile[row + k][column + n]. In the second form a also stands in a tile (of A_ROWS rows), from row a_row on.

#ifdef LLMLAB_EMULATED

template <bool TRANSPOSED, int ROWS, int N, class T>
__device__ __forceinline__ void wgmma(float (&d)[N][4], const unsigned (&a)[4], const T* tile, int row, int column,
                                      bool add) {
  const int lane = threadIdx.x % WARP;
  for (int n = 0; n < N; n++) {
    unsigned b[2];
    for (int half = 0; half < 2; half++) {
      float two[2];
      for (int i = 0; i < 2; i++) {
        const int k = 8 * half + lane % 4 * 2 + i, at = 8 * n + lane / 4;
        two[i] = to_float(tile[TRANSPOSED ? swizzled<ROWS>(row + at, column + k) : swizzled<ROWS>(row + k, column + at)]);
      }
      b[half] = pair<T>(two[0], two[1]);
    }
    for (int i = 0; i < 4 && !add; i++) d[n][i] = 0.0f;
    mma_m16n8k16<T>(d[n], a, b);
  }
}

template <bool TRANSPOSED, int A_ROWS, int ROWS, int N, class T>
__device__ __forceinline__ void wgmma(float (&d)[N][4], const T* a_tile, int a_row, int a_column, const T* tile, int row,
                                      int column, bool add) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP % 4;
  unsigned a[4];
  for (int i = 0; i < 4; i++) {
    const int r = a_row + 16 * warp + i % 2 * 8 + lane / 4, c = a_column + i / 2 * 8 + lane % 4 * 2;
    a[i] = pair<T>(to_float(a_tile[swizzled<A_ROWS>(r, c)]), to_float(a_tile[swizzled<A_ROWS>(r, c + 1)]));
  }
  wgmma<TRANSPOSED, ROWS>(d, a, tile, row, column, add);
}

#else

// Where an operand lies, in the words of the instruction: bits 0 to 13 its address, 16 to 29 the bytes from panel to
// panel, 32 to 45 the bytes from eight rows to the next eight, all in units of 16; bit 62 the swizzle. (PTX ISA, "Matrix
// Descriptor Format".)
template <int ROWS, class T>
__device__ __forceinline__ unsigned long long descriptor(const T* tile, int row, int column) {
  const unsigned address = shared_address(tile) + (column / 64 * ROWS * 64 + row * 64 + column % 64) * sizeof(T);
  return (1ull << 62) | (64ull << 32) | (static_cast<unsigned long long>(ROWS * 8) << 16) | (address & 0x3ffff) >> 4;
}

#define WGMMA_N16(TYPE) \
  asm volatile( \
      "{ .reg .pred add; setp.ne.b32 add, %13, 0;" \
      " wgmma.mma_async.sync.aligned.m64n16k16.f32." TYPE "." TYPE \
      " {%0, %1, %2, %3, %4, %5, %6, %7}," \
      " {%8, %9, %10, %11}, %12, add, 1, 1, %14; }" \
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), \
        "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)), "n"(int(!TRANSPOSED)))

#define WGMMA_N32(TYPE) \
  asm volatile( \
      "{ .reg .pred add; setp.ne.b32 add, %21, 0;" \
      " wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}," \
      " {%16, %17, %18, %19}, %20, add, 1, 1, %22; }" \
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), \
        "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), \
        "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), \
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)), "n"(int(!TRANSPOSED)))

#define WGMMA_N64(TYPE) \
  asm volatile( \
      "{ .reg .pred add; setp.ne.b32 add, %37, 0;" \
      " wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15," \
      "  %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}," \
      " {%32, %33, %34, %35}, %36, add, 1, 1, %38; }" \
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), \
        "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), \
        "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), \
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), \
        "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), \
        "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), \
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), \
        "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)), "n"(int(!TRANSPOSED)))

#define WGMMA_SHARED_N32(TYPE) \
  asm volatile( \
      "{ .reg .pred add; setp.ne.b32 add, %18, 0;" \
      " wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}," \
      " %16, %17, add, 1, 1, 0, %19; }" \
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), \
        "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), \
        "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), \
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]) \
      : "l"(a), "l"(b), "r"(int(add)), "n"(int(!TRANSPOSED)))

template <class T> constexpr bool IS_BFLOAT16 = false;
template <> constexpr bool IS_BFLOAT16<__nv_bfloat16> = true;

template <bool TRANSPOSED, int ROWS, int N, class T>
__device__ __forceinline__ void wgmma(float (&d)[N][4], const unsigned (&a)[4], const T* tile, int row, int column,
                                      bool add) {
  const unsigned long long b = descriptor<ROWS>(tile, row, column);
  static_assert(N == 2 || N == 4 || N == 8);
  if constexpr (N == 2 && IS_BFLOAT16<T>) WGMMA_N16("bf16");
  if constexpr (N == 4 && IS_BFLOAT16<T>) WGMMA_N32("bf16");
  if constexpr (N == 8 && IS_BFLOAT16<T>) WGMMA_N64("bf16");
  if constexpr (N == 2 && !IS_BFLOAT16<T>) WGMMA_N16("f16");
  if constexpr (N == 4 && !IS_BFLOAT16<T>) WGMMA_N32("f16");
  if constexpr (N == 8 && !IS_BFLOAT16<T>) WGMMA_N64("f16");
}

template <bool TRANSPOSED, int A_ROWS, int ROWS, int N, class T>
__device__ __forceinline__ void wgmma(float (&d)[N][4], const T* a_tile, int a_row, int a_column, const T* tile, int row,
                                      int column, bool add) {
  static_assert(N == 4);
  const unsigned long long a = descriptor<A_ROWS>(a_tile, a_row, a_column), b = descriptor<ROWS>(tile, row, column);
  if constexpr (IS_BFLOAT16<T>) WGMMA_SHARED_N32("bf16");
  else WGMMA_SHARED_N32("f16");
}

#endif
