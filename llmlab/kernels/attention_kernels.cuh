// Causal attention on tensor cores, forward and backward, without a matrix of size T x T in memory.
//
//     s = q kᵀ / √D,  p = softmax(s) over the keys j <= i,  y = p v,  lse = log Σ exp s
//     dp = dy vᵀ,  delta = Σ dy ∘ y,  ds = p ∘ (dp - delta),  dq = ds k / √D,  dk = dsᵀ q / √D,  dv = pᵀ dy
//
// A warp owns 16 M rows of one head (queries, or keys in the pass for dk and dv) and walks over tiles of the other
// side, which its block brings into shared memory while it works on the tile before. The accumulators of one product
// are the left operand of the next, so p and ds never leave the registers. Backward recomputes p from lse, in two passes
// (dq; dk and dv) of seven products in all: one pass needs five, but adds dq up from many blocks, by atomics in an order
// that changes from run to run, or through memory. (Dao, FlashAttention-2, arXiv:2307.08691.)
//
// What multiplies is in the file included before this one: attention_warp.cuh or attention_warpgroup.cuh.
#pragma once
#include "attention.cuh"

constexpr float LOG2E = 1.44269504f;

// 2^x by the special function unit, to within 2 units in the last place.
__device__ __forceinline__ float exp2_fast(float x) {
#ifdef LLMLAB_EMULATED
  return exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// Element i of the accumulator of row tile m and column tile n stands at this row and column.
__device__ __forceinline__ int row_of(int m, int i) { return 16 * m + i / 2 * 8 + lane() / 4; }
__device__ __forceinline__ int column_of(int n, int i) { return 8 * n + lane() % 4 * 2 + i % 2; }

// Accumulators of 16 M rows and D columns, times a factor for each of the rows that a thread has part in, to memory.
template <int D, int M, class T>
__device__ __forceinline__ void store_rows(Head<T> head, int first, const float (&c)[M][PADDED<D> / 8][4],
                                           const float (&factor)[M][2]) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = first + row_of(m, 2 * half);
      if (row >= head.length) continue;
#pragma unroll
      for (int n = 0; n < D / 8; n++)
        *reinterpret_cast<unsigned*>(head.row(row) + column_of(n, 0)) =
            pair<T>(c[m][n][2 * half] * factor[m][half], c[m][n][2 * half + 1] * factor[m][half]);
    }
}
template <int D, int M, class T>
__device__ __forceinline__ void store_rows(Head<T> head, int first, const float (&c)[M][PADDED<D> / 8][4], float factor) {
  float factors[M][2];
#pragma unroll
  for (int m = 0; m < M; m++) factors[m][0] = factors[m][1] = factor;
  store_rows<D>(head, first, c, factors);
}

// Over the four lanes that share a row of an accumulator.
template <class Op> __device__ __forceinline__ float row_reduce(float x) {
  x = Op::of(x, __shfl_xor_sync(ALL_LANES, x, 1));
  return Op::of(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

// x · y of two registers that hold two numbers each.
template <class T> __device__ __forceinline__ float dot_of_pairs(unsigned x, unsigned y) {
  const T *a = reinterpret_cast<const T*>(&x), *b = reinterpret_cast<const T*>(&y);
  return to_float(a[0]) * to_float(b[0]) + to_float(a[1]) * to_float(b[1]);
}

// No query sees a key after it: such scores become -∞, so that p is 0. Rows are keys if TRANSPOSED, else queries.
template <bool TRANSPOSED, int M, int N>
__device__ __forceinline__ void hide_future(float (&s)[M][N][4], int first_row, int first_column) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = first_row + row_of(m, i), column = first_column + column_of(n, i);
        if (TRANSPOSED ? row > column : column > row) s[m][n][i] = Max::neutral();
      }
}

// What a block of queries walks over: a tile of keys and one of values in shared memory, in two stages. While the block
// works on one stage, the other is on its way.
template <class T, int D, int KEYS, int THREADS> struct KeyValueTiles {
  static constexpr int TILE = TILE_SIZE<D, KEYS>;
  T* shared;
  Head<const T> k, v;
  __device__ __forceinline__ T* keys(int stage) const { return shared + stage * 2 * TILE; }
  __device__ __forceinline__ T* values(int stage) const { return keys(stage) + TILE; }
  __device__ __forceinline__ void copy(int stage, int key) const {
    copy_tile<D, KEYS, THREADS>(keys(stage), k, key);
    copy_tile<D, KEYS, THREADS>(values(stage), v, key);
    cp_async_commit();
  }
};

// A warp's queries begin at `first`. The keys before block_end are seen by some query of the block, those before group_end by
// some of the warps that multiply together.
template <int M> struct QueryRows {
  int first, group_end, block_end;
  template <int D> __device__ __forceinline__ QueryRows(const Place<D>& place) {
    const int block_first = place.last_tile_first();
    first = block_first + 16 * M * (threadIdx.x / WARP);
    group_end = first / GROUP_ROWS<M> * GROUP_ROWS<M> + GROUP_ROWS<M>;
    block_end = min(block_first + place.rows, place.length);
  }
};

// BLOCKS fit on a multiprocessor at once: the compiler keeps to the registers that leaves.
template <class T, int D, int M, int WARPS, int KEYS, int BLOCKS>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
attention_forward(const T* __restrict__ qkv, T* __restrict__ y, float* __restrict__ lse, int heads, int length,
                  float scale) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const Place<D> place(heads, length, 16 * M * WARPS);
  const auto [first, group_end, block_end] = QueryRows<M>(place);
  const KeyValueTiles<T, D, KEYS, 32 * WARPS> tiles{reinterpret_cast<T*>(shared), place.keys(qkv), place.values(qkv)};
  tiles.copy(0, 0);
  unsigned queries[M][PADDED<D> / 16][4];
  load_operand<D>(queries, place.queries(qkv), first);
  float out[M][PADDED<D> / 8][4] = {}, maximum[M][2], sum[M][2];  // out and sum are relative to exp(maximum)
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) maximum[m][half] = Max::neutral(), sum[m][half] = 0.0f;
  const float scale2 = scale * LOG2E;  // exp x = 2^(x log2 e): one multiplication for both factors

  for (int key = 0, stage = 0; key < block_end; key += KEYS, stage ^= 1) {
    wait_for_tile();  // and behind its barrier, nobody reads the other stage any more
    if (key + KEYS < block_end) tiles.copy(stage ^ 1, key + KEYS);
    if (key >= group_end) continue;
    const T *keys = tiles.keys(stage), *values = tiles.values(stage);

    float p[M][KEYS / 8][4];
    multiply_transposed<D, KEYS>(p, queries, keys, 0);
    finish_products(p);
    if (key + KEYS > first + 1) hide_future<false>(p, first, key);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float top = maximum[m][half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(p[m][n][2 * half], p[m][n][2 * half + 1]));
        top = row_reduce<Max>(top);
        const float shift = top * scale2, rescale = exp2_fast(fmaf(maximum[m][half], scale2, -shift));
        float total = 0.0f;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; i++) {
            p[m][n][i] = exp2_fast(fmaf(p[m][n][i], scale2, -shift));
            total += p[m][n][i];
          }
        maximum[m][half] = top;
        sum[m][half] = fmaf(sum[m][half], rescale, total);
#pragma unroll
        for (int n = 0; n < PADDED<D> / 8; n++) out[m][n][2 * half] *= rescale, out[m][n][2 * half + 1] *= rescale;
      }
    add_product<D, KEYS>(out, p, values, 0);
    finish_products(out);
  }

  float inverse[M][2];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = first + row_of(m, 2 * half);
      const float total = row_reduce<Sum>(sum[m][half]);
      inverse[m][half] = 1.0f / total;
      if (row < length && lane() % 4 == 0) lse[place.head * length + row] = maximum[m][half] * scale + logf(total);
    }
  store_rows<D>(place.plain(y), first, out, inverse);
}

// First pass of the gradient: dq, and (lse log2 e, delta) of each query side by side for the second pass, `padded` queries
// a head: whole blocks, so that the second pass can read whole tiles.
template <class T, int D, int M, int WARPS, int KEYS, int CHUNK, int BLOCKS>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
attention_backward_query(const T* __restrict__ dy, const T* __restrict__ qkv, const T* __restrict__ y,
                         const float* __restrict__ lse, T* __restrict__ dqkv, float* __restrict__ statistics, int heads,
                         int length, int padded, float scale) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const Place<D> place(heads, length, 16 * M * WARPS);
  const auto [first, group_end, block_end] = QueryRows<M>(place);
  const KeyValueTiles<T, D, KEYS, 32 * WARPS> tiles{reinterpret_cast<T*>(shared), place.keys(qkv), place.values(qkv)};
  tiles.copy(0, 0);
  unsigned queries[M][PADDED<D> / 16][4], gradients[M][PADDED<D> / 16][4], outputs[M][PADDED<D> / 16][4];
  load_operand<D>(queries, place.queries(qkv), first);
  load_operand<D>(gradients, place.plain(dy), first);
  load_operand<D>(outputs, place.plain(y), first);
  float lse2[M][2], delta[M][2];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float total = 0.0f;
#pragma unroll
      for (int k = 0; k < PADDED<D> / 16; k++)
#pragma unroll
        for (int i = half; i < 4; i += 2) total += dot_of_pairs<T>(gradients[m][k][i], outputs[m][k][i]);
      const int row = first + row_of(m, 2 * half);
      delta[m][half] = row_reduce<Sum>(total);
      lse2[m][half] = row < length ? lse[place.head * length + row] * LOG2E : 0.0f;
      if (lane() % 4 == 0)
        reinterpret_cast<float2*>(statistics)[place.head * padded + row] = make_float2(lse2[m][half], delta[m][half]);
    }
  float dq[M][PADDED<D> / 8][4] = {};
  const float scale2 = scale * LOG2E;

  for (int key = 0, stage = 0; key < block_end; key += KEYS, stage ^= 1) {
    wait_for_tile();
    if (key + KEYS < block_end) tiles.copy(stage ^ 1, key + KEYS);
    const T *keys = tiles.keys(stage), *values = tiles.values(stage);
#pragma unroll
    for (int c = 0; c < KEYS; c += CHUNK) {
      if (key + c >= group_end) break;
      float s[M][CHUNK / 8][4], ds[M][CHUNK / 8][4];
      multiply_transposed<D, KEYS>(s, queries, keys, c);
      multiply_transposed<D, KEYS>(ds, gradients, values, c);
      finish_products(s, ds);
      if (key + c + CHUNK > first + 1) hide_future<false>(s, first, key + c);
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
          for (int i = 0; i < 4; i++)
            ds[m][n][i] = exp2_fast(fmaf(s[m][n][i], scale2, -lse2[m][i / 2])) * (ds[m][n][i] - delta[m][i / 2]);
      add_product<D, KEYS>(dq, ds, keys, c);
      finish_products(dq);
    }
  }
  store_rows<D>(place.queries(dqkv), first, dq, scale);
}

// Second pass: dk and dv. Rows are keys and columns queries, so that what is computed is sᵀ, pᵀ and dsᵀ.
template <class T, int D, int M, int WARPS, int QUERIES, int CHUNK, int BLOCKS>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
attention_backward_key_value(const T* __restrict__ dy, const T* __restrict__ qkv, const float* __restrict__ statistics,
                             T* __restrict__ dqkv, int heads, int length, int padded, float scale) {
  constexpr int KEYS = 16 * M * WARPS, THREADS = 32 * WARPS, TILE = TILE_SIZE<D, QUERIES>;
  extern __shared__ __align__(1024) unsigned char shared[];
  T* tiles = reinterpret_cast<T*>(shared);                      // two stages of (queries, their dy)
  using Kept = Rows<T, D, M, KEYS, THREADS>;
  T* rooms = tiles + 4 * TILE;                                           // for keys and values
  float* table = reinterpret_cast<float*>(rooms + 2 * Kept::ROOM);  // two stages of (lse log2 e, delta)

  const Place<D> place(heads, length, KEYS);
  const auto q = place.queries(qkv), k = place.keys(qkv), v = place.values(qkv), g = place.plain(dy);
  statistics += place.head * padded * 2;
  const int block_first = place.tile * KEYS;  // early keys are seen by the most queries: they go first
  const int first = block_first + 16 * M * (threadIdx.x / WARP);
  const int group_first = first / GROUP_ROWS<M> * GROUP_ROWS<M>;

  auto copy = [&](int stage, int query) {
    copy_tile<D, QUERIES, THREADS>(tiles + stage * 2 * TILE, q, query);
    copy_tile<D, QUERIES, THREADS>(tiles + stage * 2 * TILE + TILE, g, query);
    if (const int i = 4 * threadIdx.x; i < 2 * QUERIES)
      cp_async(table + stage * 2 * QUERIES + i, statistics + 2 * query + i);
    cp_async_commit();
  };
  const int begin = block_first / QUERIES * QUERIES;
  const Kept keys(rooms, k, block_first), values(rooms + Kept::ROOM, v, block_first);
  copy(0, begin);
  float dk[M][PADDED<D> / 8][4] = {}, dv[M][PADDED<D> / 8][4] = {};
  const float scale2 = scale * LOG2E;

  for (int query = begin, stage = 0; query < length; query += QUERIES, stage ^= 1) {
    wait_for_tile();
    if (query + QUERIES < length) copy(stage ^ 1, query + QUERIES);
    const T *queries = tiles + stage * 2 * TILE, *gradients = queries + TILE;
#pragma unroll
    for (int c = 0; c < QUERIES; c += CHUNK) {
      if (query + c + CHUNK <= group_first) continue;
      float p[M][CHUNK / 8][4], ds[M][CHUNK / 8][4];
      multiply_transposed<D, QUERIES>(p, keys, queries, c);
      multiply_transposed<D, QUERIES>(ds, values, gradients, c);
      finish_products(p, ds);
      if (query + c < first + 16 * M - 1) hide_future<true>(p, first, query + c);
#pragma unroll
      for (int n = 0; n < CHUNK / 8; n++) {
        const float* of_two = table + 2 * (stage * QUERIES + c + column_of(n, 0));
        const float4 two = *reinterpret_cast<const float4*>(of_two);
        const float lse2[2] = {two.x, two.z}, delta[2] = {two.y, two.w};
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            p[m][n][i] = exp2_fast(fmaf(p[m][n][i], scale2, -lse2[i % 2]));
            ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - delta[i % 2]);
          }
      }
      add_product<D, QUERIES>(dv, p, gradients, c);
      add_product<D, QUERIES>(dk, ds, queries, c);
      finish_products(dv, dk);
    }
  }
  store_rows<D>(place.keys(dqkv), first, dk, scale);
  store_rows<D>(place.values(dqkv), first, dv, 1.0f);
}
