// Causal attention in float32 arithmetic for any dtype, alignment and head size: what attention.cu is compared with,
// and what runs where its tensor cores cannot. The formulas and the layout are those of attention.cu.
//
// A warp owns ROWS rows of one head (queries, or keys in the pass for dk and dv) and walks over tiles of 32 rows of
// the other side. For a score each lane takes one row of the tile; for a weighted sum of the tile's rows each lane
// takes every 32nd column.
#include "attention.cuh"

constexpr int ROWS = 4, WARPS = 4, BLOCK_ROWS = ROWS * WARPS, TILE = WARP;

// A row in shared memory: an odd number of 16-byte pieces, so that eight lanes read eight rows without bank conflict.
template <int D> constexpr int STRIDE = ((D + 3) / 4 | 1) * 4;
template <int D> constexpr int COLUMNS = (D + WARP - 1) / WARP;

// Rows first, first + 1, ... as float32 in shared memory; what does not exist is zero.
template <int D, int COUNT, class T>
__device__ __forceinline__ void load_rows(float* to, Head<const T> head, int first) {
  for (int i = threadIdx.x; i < COUNT * STRIDE<D>; i += WARPS * WARP) {
    const int row = first + i / STRIDE<D>, column = i % STRIDE<D>;
    to[i] = row < head.length && column < D ? to_float(head.row(row)[column]) : 0.0f;
  }
}

// Tiles of two heads in shared memory, and behind them where each warp exchanges its weights.
template <int D> struct Tiles {
  float *one, *other, *exchange;
  __device__ __forceinline__ explicit Tiles(float* shared)
      : one(shared), other(one + TILE * STRIDE<D>), exchange(other + TILE * STRIDE<D> + threadIdx.x / WARP * ROWS * TILE) {}

  // Between barriers: others may still be reading the tiles before, and all wait for these.
  template <class T> __device__ __forceinline__ void load(Head<const T> of_one, Head<const T> of_other, int row) const {
    __syncthreads();
    load_rows<D, TILE>(one, of_one, row);
    load_rows<D, TILE>(other, of_other, row);
    __syncthreads();
  }
};

// s[r] = rows[r] . other
template <int D> __device__ __forceinline__ void dot(float (&s)[ROWS], const float* rows, const float* other) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) s[r] = 0.0f;
#pragma unroll 2
  for (int d = 0; d < D; d += 4) {
    const float4 b = *reinterpret_cast<const float4*>(other + d);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float4 a = *reinterpret_cast<const float4*>(rows + r * STRIDE<D> + d);
      s[r] += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
  }
}

// sum[r] += Σ_j weights[r][j] tile[j], where lane j of the warp brings the weights of row j of the tile.
template <int D>
__device__ __forceinline__ void add_weighted(float (&sum)[ROWS][COLUMNS<D>], const float (&weights)[ROWS],
                                             const float* tile, float* exchange) {
  __syncwarp();  // a call before this one may still be reading
#pragma unroll
  for (int r = 0; r < ROWS; r++) exchange[r * TILE + lane()] = weights[r];
  __syncwarp();
#pragma unroll 4
  for (int j = 0; j < TILE; j++)
#pragma unroll
    for (int c = 0; c < COLUMNS<D>; c++) {
      const int column = c * WARP + lane();
      const float x = column < D ? tile[j * STRIDE<D> + column] : 0.0f;
#pragma unroll
      for (int r = 0; r < ROWS; r++) sum[r][c] += exchange[r * TILE + j] * x;
    }
}

// out[first + r] = sum[r] * factor[r]
template <int D, class T>
__device__ __forceinline__ void store_rows(Head<T> out, int first, const float (&sum)[ROWS][COLUMNS<D>],
                                           const float (&factor)[ROWS]) {
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLUMNS<D>; c++) {
      const int column = c * WARP + lane();
      if (first + r < out.length && column < D) out.row(first + r)[column] = from_float<T>(sum[r][c] * factor[r]);
    }
}

template <class T, int D>
__global__ void __launch_bounds__(WARPS * WARP, 1)
attention_scalar_forward(const T* __restrict__ qkv, T* __restrict__ y, float* __restrict__ lse, int heads, int length,
                         float scale) {
  extern __shared__ __align__(16) float shared[];
  float* queries = shared;
  const Tiles<D> tiles(queries + BLOCK_ROWS * STRIDE<D>);

  const Place<D> place(heads, length, BLOCK_ROWS);
  const auto k = place.keys(qkv), v = place.values(qkv);
  const int block_first = place.last_tile_first(), warp = threadIdx.x / WARP;
  const int first = block_first + warp * ROWS, end = min(block_first + BLOCK_ROWS, length);
  load_rows<D, BLOCK_ROWS>(queries, place.queries(qkv), block_first);

  float maximum[ROWS], sum[ROWS], out[ROWS][COLUMNS<D>] = {};
#pragma unroll
  for (int r = 0; r < ROWS; r++) maximum[r] = Max::neutral(), sum[r] = 0.0f;

  for (int key = 0; key < end; key += TILE) {
    tiles.load(k, v, key);
    float p[ROWS];
    dot<D>(p, queries + warp * ROWS * STRIDE<D>, tiles.one + lane() * STRIDE<D>);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float s = key + lane() <= first + r ? p[r] * scale : Max::neutral();
      const float top = fmaxf(maximum[r], warp_max(s)), rescale = expf(maximum[r] - top);
      maximum[r] = top;
      p[r] = expf(s - top);
      sum[r] = sum[r] * rescale + p[r];
#pragma unroll
      for (int c = 0; c < COLUMNS<D>; c++) out[r][c] *= rescale;
    }
    add_weighted<D>(out, p, tiles.other, tiles.exchange);
  }
  float inverse[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const float total = warp_sum(sum[r]);
    inverse[r] = 1.0f / total;
    if (lane() == 0 && first + r < length) lse[place.head * length + first + r] = maximum[r] + logf(total);
  }
  store_rows<D>(place.plain(y), first, out, inverse);
}

// First pass of the gradient: dq, and (lse, delta) of each query for the second pass.
template <class T, int D>
__global__ void __launch_bounds__(WARPS * WARP, 1)
attention_scalar_backward_query(const T* __restrict__ dy, const T* __restrict__ qkv, const T* __restrict__ y,
                                const float* __restrict__ lse, T* __restrict__ dqkv, float* __restrict__ statistics,
                                int heads, int length, int padded, float scale) {
  extern __shared__ __align__(16) float shared[];
  float* queries = shared;
  float* gradients = queries + BLOCK_ROWS * STRIDE<D>;
  const Tiles<D> tiles(gradients + BLOCK_ROWS * STRIDE<D>);

  const Place<D> place(heads, length, BLOCK_ROWS);
  const auto k = place.keys(qkv), v = place.values(qkv);
  const int block_first = place.last_tile_first(), warp = threadIdx.x / WARP;
  const int first = block_first + warp * ROWS, end = min(block_first + BLOCK_ROWS, length);
  load_rows<D, BLOCK_ROWS>(queries, place.queries(qkv), block_first);
  load_rows<D, BLOCK_ROWS>(gradients, place.plain(dy), block_first);
  __syncthreads();

  float row_lse[ROWS], delta[ROWS], dq[ROWS][COLUMNS<D>] = {}, factor[ROWS];
  const auto outputs = place.plain(y);
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const int row = first + r;
    float sum = 0.0f;
    for (int d = lane(); d < D && row < length; d += WARP)
      sum += gradients[(warp * ROWS + r) * STRIDE<D> + d] * to_float(outputs.row(row)[d]);
    delta[r] = warp_sum(sum);
    row_lse[r] = row < length ? lse[place.head * length + row] : 0.0f;
    factor[r] = scale;
    if (lane() < 2) statistics[(place.head * padded + row) * 2 + lane()] = lane() ? delta[r] : row_lse[r];
  }

  for (int key = 0; key < end; key += TILE) {
    tiles.load(k, v, key);
    float s[ROWS], ds[ROWS];
    dot<D>(s, queries + warp * ROWS * STRIDE<D>, tiles.one + lane() * STRIDE<D>);
    dot<D>(ds, gradients + warp * ROWS * STRIDE<D>, tiles.other + lane() * STRIDE<D>);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float p = key + lane() <= first + r ? expf(s[r] * scale - row_lse[r]) : 0.0f;
      ds[r] = p * (ds[r] - delta[r]);
    }
    add_weighted<D>(dq, ds, tiles.one, tiles.exchange);
  }
  store_rows<D>(place.queries(dqkv), first, dq, factor);
}

// Second pass: dk and dv. The rows of a warp are keys; the tiles hold queries and gradients of y.
template <class T, int D>
__global__ void __launch_bounds__(WARPS * WARP, 1)
attention_scalar_backward_key_value(const T* __restrict__ dy, const T* __restrict__ qkv,
                                    const float* __restrict__ statistics, T* __restrict__ dqkv, int heads, int length,
                                    int padded, float scale) {
  extern __shared__ __align__(16) float shared[];
  float* keys = shared;
  float* values = keys + BLOCK_ROWS * STRIDE<D>;
  const Tiles<D> tiles(values + BLOCK_ROWS * STRIDE<D>);

  const Place<D> place(heads, length, BLOCK_ROWS);
  const auto q = place.queries(qkv), g = place.plain(dy);
  const int block_first = place.tile * BLOCK_ROWS, warp = threadIdx.x / WARP;
  const int first = block_first + warp * ROWS;
  load_rows<D, BLOCK_ROWS>(keys, place.keys(qkv), block_first);
  load_rows<D, BLOCK_ROWS>(values, place.values(qkv), block_first);

  float dk[ROWS][COLUMNS<D>] = {}, dv[ROWS][COLUMNS<D>] = {}, factor[ROWS], one[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) factor[r] = scale, one[r] = 1.0f;
  for (int query = block_first / TILE * TILE; query < length; query += TILE) {
    tiles.load(q, g, query);
    const int row = query + lane();
    const float* of_row = statistics + (place.head * padded + row) * 2;
    const float row_lse = row < length ? of_row[0] : 0.0f, delta = row < length ? of_row[1] : 0.0f;
    float p[ROWS], ds[ROWS];
    dot<D>(p, keys + warp * ROWS * STRIDE<D>, tiles.one + lane() * STRIDE<D>);
    dot<D>(ds, values + warp * ROWS * STRIDE<D>, tiles.other + lane() * STRIDE<D>);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      p[r] = row < length && row >= first + r ? expf(p[r] * scale - row_lse) : 0.0f;
      ds[r] = p[r] * (ds[r] - delta);
    }
    add_weighted<D>(dv, p, tiles.other, tiles.exchange);
    add_weighted<D>(dk, ds, tiles.one, tiles.exchange);
  }
  store_rows<D>(place.keys(dqkv), first, dk, factor);
  store_rows<D>(place.values(dqkv), first, dv, one);
}
