// Softmax along rows:  y = exp(x - m) / sum exp(x - m),  m = max x;  backward  dx = y (dy - sum dy y).
// Every element is read once and written once: between the reduction and the result a row waits on the chip, in
// the registers of the warp or block that works on it, or, if it is too long, in the block's shared memory.
#include "tensor_core.cuh"

// ---- Rows in registers: PACKS packs for each thread of a team.

// Who works on a row: the whole block; or each warp alone, and then no barrier is needed.
template <bool BLOCK> struct Team {
  __device__ __forceinline__ static int rank() { return BLOCK ? threadIdx.x : threadIdx.x % WARP; }
  __device__ __forceinline__ static int size() { return BLOCK ? blockDim.x : WARP; }
  __device__ __forceinline__ static index_t row() {
    return BLOCK ? blockIdx.x : static_cast<index_t>(blockIdx.x) * (blockDim.x / WARP) + threadIdx.x / WARP;
  }
  template <class Op> __device__ __forceinline__ static float reduce(float v) {
    if constexpr (BLOCK) return block_reduce<Op>(v);
    return warp_reduce<Op>(v);
  }
};

// The j-th pack of a thread starts at this element of the row; packs of a row that starts off a 16-byte boundary
// are shifted so that they start on one.
template <class T, bool BLOCK> __device__ __forceinline__ int pack_start(int first, int j) {
  return first + (j * Team<BLOCK>::size() + Team<BLOCK>::rank()) * Pack<T>::size;
}

template <bool BLOCK, bool ALIGNED, int PACKS, class T>
__device__ __forceinline__ void load_team(Pack<T> (&pack)[PACKS], const T* row, int first, int C, float outside) {
#pragma unroll
  for (int j = 0; j < PACKS; j++) {
    const int i = pack_start<T, BLOCK>(first, j);
    if (i < C) {
      pack[j] = load_row_pack<ALIGNED>(row, i, C, outside);
    } else {
#pragma unroll
      for (int k = 0; k < Pack<T>::size; k++) pack[j].at[k] = from_float<T>(outside);
    }
  }
}

template <class T, int PACKS, bool ALIGNED, bool BLOCK>
__global__ void __launch_bounds__(512) softmax_forward(T* y, const T* x, index_t N, int C) {
  constexpr int size = Pack<T>::size;
  const index_t n = Team<BLOCK>::row();
  if (n >= N) return;
  const int first = ALIGNED ? 0 : first_pack(x + n * C);
  Pack<T> x_pack[PACKS];
  load_team<BLOCK, ALIGNED>(x_pack, x + n * C, first, C, negative_infinity());  // exp of what is outside will be 0

  float v[PACKS][size], m = negative_infinity();
#pragma unroll
  for (int j = 0; j < PACKS; j++) {
    unpack<T>(v[j], x_pack[j]);
#pragma unroll
    for (int k = 0; k < size; k++) m = fmaxf(m, v[j][k]);
  }
  m = Team<BLOCK>::template reduce<Max>(m);

  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < PACKS; j++)
#pragma unroll
    for (int k = 0; k < size; k++) sum += v[j][k] = __expf(v[j][k] - m);
  const float scale = 1.0f / Team<BLOCK>::template reduce<Sum>(sum);

#pragma unroll
  for (int j = 0; j < PACKS; j++) {
#pragma unroll
    for (int k = 0; k < size; k++) v[j][k] *= scale;
    const int i = pack_start<T, BLOCK>(first, j);
    if (i < C) store_row<ALIGNED>(y + n * C, i, C, v[j]);
  }
}

template <class T, int PACKS, bool ALIGNED, bool BLOCK>
__global__ void __launch_bounds__(512) softmax_backward(T* dx, const T* dy, const T* y, index_t N, int C) {
  constexpr int size = Pack<T>::size;
  const index_t n = Team<BLOCK>::row();
  if (n >= N) return;
  const int first = ALIGNED ? 0 : first_pack(y + n * C);
  Pack<T> y_pack[PACKS], dy_pack[PACKS];
  load_team<BLOCK, ALIGNED>(y_pack, y + n * C, first, C, 0.0f);
  load_team<BLOCK, ALIGNED>(dy_pack, dy + n * C, first, C, 0.0f);

  float v[size], g[size], dot = 0.0f;
#pragma unroll
  for (int j = 0; j < PACKS; j++) {
    unpack<T>(v, y_pack[j]);
    unpack<T>(g, dy_pack[j]);
#pragma unroll
    for (int k = 0; k < size; k++) dot += g[k] * v[k];
  }
  dot = Team<BLOCK>::template reduce<Sum>(dot);

#pragma unroll
  for (int j = 0; j < PACKS; j++) {
    unpack<T>(v, y_pack[j]);
    unpack<T>(g, dy_pack[j]);
#pragma unroll
    for (int k = 0; k < size; k++) g[k] = v[k] * (g[k] - dot);
    const int i = pack_start<T, BLOCK>(first, j);
    if (i < C) store_row<ALIGNED>(dx + n * C, i, C, g);
  }
}

// ---- Long rows, a block each. Packs are dealt out to the threads in turn; each thread copies its own packs to
// shared memory, without holding them in registers, so that a whole row is under way at once; and it is the only one
// to read them back, so that no barrier is needed. What does not fit is read again, most likely from the L2.

template <class T, bool ALIGNED> struct LongRow {
  static constexpr int size = Pack<T>::size;
  const T* row;
  Pack<T>* kept_packs;
  int first, C, kept;
  float outside;

  __device__ __forceinline__ LongRow(const T* row, Pack<T>* kept_packs, int first, int C, int kept, float outside)
      : row(row), kept_packs(kept_packs), first(first), C(C), kept(kept), outside(outside) {}

  __device__ __forceinline__ int start(int p) const { return first + p * size; }
  __device__ __forceinline__ int packs() const { return (C - first + size - 1) / size; }

  __device__ __forceinline__ void fetch() const {
    for (int p = threadIdx.x; p < min(kept, packs()); p += blockDim.x) {
      if (ALIGNED || is_whole_pack(row, start(p), C)) {
        cp_async(kept_packs + p, row + start(p));
      } else {
        kept_packs[p] = load_row_pack<false>(row, start(p), C, outside);
      }
    }
    cp_async_commit();
  }
  __device__ __forceinline__ void get(float (&v)[size], int p) const {
    unpack<T>(v, p < kept ? kept_packs[p] : load_row_pack<ALIGNED>(row, start(p), C, outside));
  }
};

// `kept`: how many packs of a row fit the shared memory given.
template <class T, bool ALIGNED>
__global__ void __launch_bounds__(1024) softmax_forward_long(T* y, const T* x, int C, int kept) {
  extern __shared__ __align__(16) unsigned char shared[];
  const index_t start = static_cast<index_t>(blockIdx.x) * C;
  const int first = ALIGNED ? 0 : first_pack(x + start);
  const LongRow<T, ALIGNED> row(x + start, reinterpret_cast<Pack<T>*>(shared), first, C, kept, negative_infinity());
  row.fetch();
  cp_async_wait<0>();
  float v[Pack<T>::size];

  float m = negative_infinity();
  for (int p = threadIdx.x; p < row.packs(); p += blockDim.x) {
    row.get(v, p);
#pragma unroll
    for (int k = 0; k < row.size; k++) m = fmaxf(m, v[k]);
  }
  m = block_max(m);

  float sum = 0.0f;
  for (int p = threadIdx.x; p < row.packs(); p += blockDim.x) {
    row.get(v, p);
#pragma unroll
    for (int k = 0; k < row.size; k++) sum += __expf(v[k] - m);
  }
  const float scale = 1.0f / block_sum(sum);

  for (int p = threadIdx.x; p < row.packs(); p += blockDim.x) {
    row.get(v, p);
#pragma unroll
    for (int k = 0; k < row.size; k++) v[k] = __expf(v[k] - m) * scale;
    store_row<ALIGNED>(y + start, row.start(p), C, v);
  }
}

template <class T, bool ALIGNED>
__global__ void __launch_bounds__(1024) softmax_backward_long(T* dx, const T* dy, const T* y, int C, int kept) {
  extern __shared__ __align__(16) unsigned char shared[];
  Pack<T>* packs = reinterpret_cast<Pack<T>*>(shared);
  const index_t start = static_cast<index_t>(blockIdx.x) * C;
  const int first = ALIGNED ? 0 : first_pack(y + start);
  const LongRow<T, ALIGNED> y_row(y + start, packs, first, C, kept, 0.0f);
  const LongRow<T, ALIGNED> dy_row(dy + start, packs + kept, first, C, kept, 0.0f);
  y_row.fetch();
  dy_row.fetch();
  cp_async_wait<0>();
  float v[Pack<T>::size], g[Pack<T>::size];

  float dot = 0.0f;
  for (int p = threadIdx.x; p < y_row.packs(); p += blockDim.x) {
    y_row.get(v, p);
    dy_row.get(g, p);
#pragma unroll
    for (int k = 0; k < y_row.size; k++) dot += g[k] * v[k];
  }
  dot = block_sum(dot);

  for (int p = threadIdx.x; p < y_row.packs(); p += blockDim.x) {
    y_row.get(v, p);
    dy_row.get(g, p);
#pragma unroll
    for (int k = 0; k < y_row.size; k++) g[k] = v[k] * (g[k] - dot);
    store_row<ALIGNED>(dx + start, y_row.start(p), C, g);
  }
}
