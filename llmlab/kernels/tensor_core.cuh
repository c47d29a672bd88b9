// The instructions that CUDA C++ has no words for, each once: matrix product of a warp, its operand loads, and copies
// to shared memory that do not pass through registers. PTX on a GPU; `emulated::` functions of the same effect on a CPU.
#pragma once
#include "common.cuh"

// A 32-bit register holds two neighbouring 16-bit elements, the one with the lower index in the low half.

// ---- d = a b + d, with a 16 x 16, b 16 x 8, d 16 x 8, spread over the 32 lanes of a warp. With g = lane / 4 and
// t = lane % 4, lane holds
//   a[0] = A[g    ][2t, 2t + 1]   a[2] = A[g    ][2t + 8, 2t + 9]     b[0] = B[2t,     2t + 1][g]
//   a[1] = A[g + 8][2t, 2t + 1]   a[3] = A[g + 8][2t + 8, 2t + 9]     b[1] = B[2t + 8, 2t + 9][g]
//   d[0], d[1] = D[g][2t, 2t + 1]   d[2], d[3] = D[g + 8][2t, 2t + 1]
// Products are exact and sums are float32. All 32 lanes take part. (PTX ISA, "Matrix Fragments for mma.m16n8k16".)

template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef LLMLAB_EMULATED
  emulated::mma_m16n8k16_bf16(d, a, b, d);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef LLMLAB_EMULATED
  emulated::mma_m16n8k16_f16(d, a, b, d);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// ---- N = 1, 2 or 4 matrices of 8 x 8 16-bit elements from shared memory, in the layout that mma wants: lane 8 m + i
// gives the address of row i of matrix m (16 bytes, aligned to 16), and r[m] of each lane receives elements
// [lane / 4][2 (lane % 4) + {0, 1}] of matrix m: of its transpose, in the _trans form. Addresses of lanes past 8 N
// are not used. One instruction replaces 4 N scalar loads a lane, and is free of bank conflicts if the eight rows
// of each matrix fall into different 16-byte columns of the banks.

__device__ __forceinline__ unsigned shared_address(const void* p) {
#ifdef LLMLAB_EMULATED
  return 0;  // a CPU has one address space; the emulated branches take the pointer itself
#else
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
#endif
}

__device__ __forceinline__ void ldmatrix_x1(unsigned (&r)[1], const void* row) {
#ifdef LLMLAB_EMULATED
  emulated::ldmatrix<1, false>(r, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(r[0]) : "r"(shared_address(row)) : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x2(unsigned (&r)[2], const void* row) {
#ifdef LLMLAB_EMULATED
  emulated::ldmatrix<2, false>(r, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)) : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void* row) {
#ifdef LLMLAB_EMULATED
  emulated::ldmatrix<4, false>(r, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x1_trans(unsigned (&r)[1], const void* row) {
#ifdef LLMLAB_EMULATED
  emulated::ldmatrix<1, true>(r, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(r[0]) : "r"(shared_address(row)) : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x2_trans(unsigned (&r)[2], const void* row) {
#ifdef LLMLAB_EMULATED
  emulated::ldmatrix<2, true>(r, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)) : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], const void* row) {
#ifdef LLMLAB_EMULATED
  emulated::ldmatrix<4, true>(r, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
#endif
}

// ---- 16 bytes from global to shared memory while the thread goes on. The copy is complete only after a wait, and
// visible to other threads only after a barrier behind that wait. With `valid` false nothing is read and 16 zero bytes
// are written: a tile that hangs over the edge needs no branch.

__device__ __forceinline__ void cp_async(void* shared, const void* global, bool valid = true) {
  const int bytes = valid ? 16 : 0;
#ifdef LLMLAB_EMULATED
  emulated::cp_async16(shared, global, bytes);
#else
  // .cg: past the L1, which would only hold a second copy of what shared memory holds.
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(shared_address(shared)), "l"(global), "r"(bytes) : "memory");
#endif
}

// Closes a group: the copies started since the last commit.
__device__ __forceinline__ void cp_async_commit() {
#ifdef LLMLAB_EMULATED
  emulated::cp_async_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most PENDING of this thread's newest groups are still under way.
template <int PENDING> __device__ __forceinline__ void cp_async_wait() {
#ifdef LLMLAB_EMULATED
  emulated::cp_async_wait<PENDING>();
#else
  asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
#endif
}

// Two float32 as one register of 16-bit elements, `low` in the low half: an accumulator becomes an operand.
template <class T> __device__ __forceinline__ unsigned pair(float low, float high);
template <> __device__ __forceinline__ unsigned pair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const unsigned&>(v);
}
template <> __device__ __forceinline__ unsigned pair<__half>(float low, float high) {
  const __half2 v = __floats2half2_rn(low, high);
  return reinterpret_cast<const unsigned&>(v);
}
