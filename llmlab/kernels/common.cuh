// What every kernel here leans on: 16-bit floats read as float32, 16-byte accesses, sums over a warp and a block.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef long long index_t;  // sizes pass 2^31 elements: every index into an array is 64 bits wide

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// ---- 16-bit floats are for storage: arithmetic is float32, with one rounding when the result is stored.

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }

template <class T> __device__ __forceinline__ T from_float(float v);
template <> __device__ __forceinline__ float from_float<float>(float v) { return v; }
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }
template <> __device__ __forceinline__ __half from_float<__half>(float v) { return __float2half_rn(v); }

// ---- A pack: the 16 bytes that one thread can move with one instruction. A warp then asks for 512 bytes at once,
// four full 128-byte lines, with a quarter to an eighth of the instructions of scalar access.

template <class T> struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

// The address has to be a multiple of 16; on a GPU any other is a fault.
template <class T> __device__ __forceinline__ Pack<T> load_pack(const T* p) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = *reinterpret_cast<const uint4*>(p);
  return pack;
}
template <class T> __device__ __forceinline__ void store_pack(T* p, const Pack<T>& pack) {
  *reinterpret_cast<uint4*>(p) = *reinterpret_cast<const uint4*>(&pack);
}

// The same for data that no one reads again soon: marked "evict first", it leaves the L2 to data that is reused.
template <class T> __device__ __forceinline__ Pack<T> load_pack_once(const T* p) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = __ldcs(reinterpret_cast<const uint4*>(p));
  return pack;
}
template <class T> __device__ __forceinline__ void store_pack_once(T* p, const Pack<T>& pack) {
  __stcs(reinterpret_cast<uint4*>(p), *reinterpret_cast<const uint4*>(&pack));
}

// A pack's elements as float32, and back with one rounding each. Two 16-bit floats share a register, and one
// instruction converts such a pair from float32.
template <class T> __device__ __forceinline__ void unpack(float (&v)[Pack<T>::size], const Pack<T>& pack) {
#pragma unroll
  for (int k = 0; k < Pack<T>::size; k++) v[k] = to_float(pack.at[k]);
}
__device__ __forceinline__ void repack(Pack<float>& pack, const float (&v)[4]) {
#pragma unroll
  for (int k = 0; k < 4; k++) pack.at[k] = v[k];
}
__device__ __forceinline__ void repack(Pack<__nv_bfloat16>& pack, const float (&v)[8]) {
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(v[k], v[k + 1]);
    pack.at[k] = pair.x;
    pack.at[k + 1] = pair.y;
  }
}
__device__ __forceinline__ void repack(Pack<__half>& pack, const float (&v)[8]) {
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    const __half2 pair = __floats2half2_rn(v[k], v[k + 1]);
    pack.at[k] = pair.x;
    pack.at[k + 1] = pair.y;
  }
}

// ---- Rows that start or end off a 16-byte boundary. Cover row[0 .. n) with packs that do start on boundaries: the
// first begins at first_pack(row) <= 0, each next one Pack<T>::size further; the head and the tail hang over the
// row's ends. ALIGNED promises that nothing hangs over (16-byte base and row length): then no check is compiled in.

template <class T> __device__ __forceinline__ int first_pack(const T* row) {
  return -static_cast<int>((reinterpret_cast<unsigned long long>(row) & 15) / sizeof(T));
}

// Whether row[i .. i + size) is one aligned 16-byte access inside the row.
template <class T> __device__ __forceinline__ bool is_whole_pack(const T* row, index_t i, index_t n) {
  return i >= 0 && i + Pack<T>::size <= n && (reinterpret_cast<unsigned long long>(row + i) & 15) == 0;
}

// row[i .. i + size), with `outside` where the row has no such element; as a pack, and as float32.
template <bool ALIGNED, class T>
__device__ __forceinline__ Pack<T> load_row_pack(const T* row, index_t i, index_t n, float outside) {
  Pack<T> pack;
  if (ALIGNED || is_whole_pack(row, i, n)) {
    pack = load_pack_once(row + i);
  } else {
#pragma unroll
    for (int k = 0; k < Pack<T>::size; k++)
      pack.at[k] = i + k >= 0 && i + k < n ? row[i + k] : from_float<T>(outside);
  }
  return pack;
}
template <bool ALIGNED, class T>
__device__ __forceinline__ void load_row(float (&v)[Pack<T>::size], const T* row, index_t i, index_t n, float outside) {
  unpack<T>(v, load_row_pack<ALIGNED>(row, i, n, outside));
}

// row[i + k] = v[k] where the row has such an element.
template <bool ALIGNED, class T>
__device__ __forceinline__ void store_row(T* row, index_t i, index_t n, const float (&v)[Pack<T>::size]) {
  if (ALIGNED || is_whole_pack(row, i, n)) {
    Pack<T> pack;
    repack(pack, v);
    store_pack_once(row + i, pack);
  } else {
#pragma unroll
    for (int k = 0; k < Pack<T>::size; k++)
      if (i + k >= 0 && i + k < n) row[i + k] = from_float<T>(v[k]);
  }
}

// ---- Reductions over a warp by butterfly: registers are exchanged directly, no memory and no barrier. After the step
// with distance d, each lane holds the result over the lanes that differ from it in the bits of d and above; after
// d = 1, all 32 lanes hold the result over the whole warp, in the same order of additions, so the same bits.

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fc00000); }

struct Sum {
  __device__ __forceinline__ static float neutral() { return 0.0f; }
  __device__ __forceinline__ static float of(float a, float b) { return a + b; }
};
struct Max {
  __device__ __forceinline__ static float neutral() { return negative_infinity(); }
  __device__ __forceinline__ static float of(float a, float b) { return fmaxf(a, b); }
};

template <class Op> __device__ __forceinline__ float warp_reduce(float v) {
#pragma unroll
  for (int d = WARP / 2; d > 0; d /= 2) v = Op::of(v, __shfl_xor_sync(ALL_LANES, v, d));
  return v;
}
__device__ __forceinline__ float warp_sum(float v) { return warp_reduce<Sum>(v); }
__device__ __forceinline__ float warp_max(float v) { return warp_reduce<Max>(v); }

// Over a block of whole warps (one dimension): each warp leaves one number in shared memory, then every warp reduces
// those, so that all threads hold the result and no broadcast is needed.
template <class Op> __device__ __forceinline__ float block_reduce(float v) {
  __shared__ float of_warp[WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  v = warp_reduce<Op>(v);
  __syncthreads();  // a call before this one may still be reading of_warp
  if (lane == 0) of_warp[warp] = v;
  __syncthreads();
  return warp_reduce<Op>(lane < warps ? of_warp[lane] : Op::neutral());
}
__device__ __forceinline__ float block_sum(float v) { return block_reduce<Sum>(v); }
__device__ __forceinline__ float block_max(float v) { return block_reduce<Max>(v); }
