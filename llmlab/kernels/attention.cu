// Causal attention on tensor cores, forward and backward, without a matrix of size T x T in memory.
//
//     s = q kᵀ / √D,  p = softmax(s) over the keys j <= i,  y = p v,  lse = log Σ exp s
//     dp = dy vᵀ,  delta = Σ dy ∘ y,  ds = p ∘ (dp - delta),  dq = ds k / √D,  dk = dsᵀ q / √D,  dv = pᵀ dy
//
// A warp owns 16 M rows of one head (queries, or keys in the pass for dk and dv) and walks over tiles of the other
// side that the block brings into shared memory. The accumulators of one mma are, register by register, the left
// operand of the next, so p and ds never leave the registers. (Dao, FlashAttention-2, arXiv:2307.08691.)
//
// qkv is (B, T, 3, H, D), read in place: a row of a head is D contiguous numbers, and the next is 3 H D further on.
#include "attention.cuh"
#include "tensor_core.cuh"

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

// A head in 16-bit numbers: D is padded with zeros to the depth of an mma, and a row in shared memory by 16 bytes
// more, so that eight rows begin in eight different groups of banks: ldmatrix meets no bank conflict.
template <int D> constexpr int PADDED = (D + 15) / 16 * 16;
template <int D> constexpr int STRIDE = PADDED<D> + 8;

__device__ __forceinline__ int lane() { return threadIdx.x % 32; }

// The sum of the two products of two packed pairs.
template <class T> __device__ __forceinline__ float dot2(unsigned a, unsigned b) {
  const T *x = reinterpret_cast<const T*>(&a), *y = reinterpret_cast<const T*>(&b);
  return to_float(x[0]) * to_float(y[0]) + to_float(x[1]) * to_float(y[1]);
}

// Begins the copy of rows first, first + 1, ... into a tile of shared memory; what does not exist becomes zero.
template <int D, int ROWS, int THREADS, class T>
__device__ __forceinline__ void copy_tile(T* tile, Head<const T> head, int first) {
  constexpr int CHUNKS = PADDED<D> / 8, STEP = THREADS / CHUNKS;
  const int row = threadIdx.x / CHUNKS, column = threadIdx.x % CHUNKS * 8;
#pragma unroll
  for (int i = 0; i < ROWS; i += STEP)
    if ((THREADS % CHUNKS == 0 || row < STEP) && (ROWS % STEP == 0 || row + i < ROWS))
      cp_async(tile + (row + i) * STRIDE<D> + column, head.row(first + row + i) + column,
               first + row + i < head.length && column < D);
}

// The left operands of mma for 16 M rows: a[m][k] is rows 16m.. and columns 16k...
template <int D, int M, class T>
__device__ __forceinline__ void load_operand(unsigned (&a)[M][PADDED<D> / 16][4], Head<const T> rows, int first) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int k = 0; k < PADDED<D> / 16; k++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int row = first + 16 * m + i % 2 * 8 + lane() / 4, column = 16 * k + i / 2 * 8 + lane() % 4 * 2;
        bool exists = row < rows.length && column < D;
        a[m][k][i] = exists ? *reinterpret_cast<const unsigned*>(rows.row(row) + column) : 0;
      }
}

// The accumulators of 16 M rows and D columns, times factor (one for each row that a thread holds), to global memory.
template <int D, int M, class T>
__device__ __forceinline__ void store_rows(Head<T> rows, int first, const float (&c)[M][PADDED<D> / 8][4],
                     const float (&factor)[M][2]) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = first + 16 * m + 8 * half + lane() / 4;
      if (row >= rows.length) continue;
      T* out = rows.row(row) + lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < D / 8; n++)
        *reinterpret_cast<unsigned*>(out + 8 * n) =
          pair<T>(c[m][n][2 * half] * factor[m][half], c[m][n][2 * half + 1] * factor[m][half]);
    }
}

// s = a tileᵀ, where tile is 8 N rows of D numbers in shared memory.
template <int D, int M, int N, class T>
__device__ __forceinline__ void product_transposed(float (&s)[M][N][4], const unsigned (&a)[M][PADDED<D> / 16][4], const T* tile) {
  const T* source = tile + (lane() / 16 * 8 + lane() % 8) * STRIDE<D> + lane() / 8 % 2 * 8;
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

// c += p tile, where tile is 8 N rows of D numbers in shared memory and p an accumulator of an earlier product.
template <int D, int M, int N, class T>
__device__ __forceinline__ void add_product(float (&c)[M][PADDED<D> / 8][4], const float (&p)[M][N][4], const T* tile) {
  const T* source = tile + (lane() / 8 % 2 * 8 + lane() % 8) * STRIDE<D> + lane() / 16 * 8;
#pragma unroll
  for (int k = 0; k < N / 2; k++) {
    unsigned a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < 4; i++) a[m][i] = pair<T>(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1]);
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

// Over the four lanes that share a row of an accumulator.
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(ALL_LANES, x, 1);
  return x + __shfl_xor_sync(ALL_LANES, x, 2);
}
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
  return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

// Accumulator element i of row tile m and column tile n stands at this row and column.
__device__ __forceinline__ int row_of(int m, int i) { return 16 * m + i / 2 * 8 + lane() / 4; }
__device__ __forceinline__ int column_of(int n, int i) { return 8 * n + lane() % 4 * 2 + i % 2; }

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

template <class T, int D, int M, int WARPS, int KEYS>
__global__ void __launch_bounds__(32 * WARPS)
attention_forward(const T* __restrict__ qkv, T* __restrict__ y, float* __restrict__ lse, int heads, int length, float scale) {
  constexpr int QUERIES = 16 * M * WARPS, THREADS = 32 * WARPS;
  extern __shared__ __align__(16) unsigned char memory[];
  T* tiles = reinterpret_cast<T*>(memory);          // two stages of (keys, values)
  constexpr int TILE = KEYS * STRIDE<D>;

  const Place<D> place(heads, length, QUERIES);
  const auto q = place.queries(qkv), k = place.keys(qkv), v = place.values(qkv);

  // Late queries see the most keys: they go first.
  int block_first = place.last_tile_first();
  int first = block_first + 16 * M * (threadIdx.x / 32), last = first + 16 * M - 1;
  int end = min(block_first + QUERIES, length);

  copy_tile<D, KEYS, THREADS>(tiles, k, 0);
  copy_tile<D, KEYS, THREADS>(tiles + TILE, v, 0);
  cp_async_commit();

  unsigned queries[M][PADDED<D> / 16][4];
  load_operand<D>(queries, q, first);
  float out[M][PADDED<D> / 8][4] = {}, maximum[M][2], sum[M][2];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int i = 0; i < 2; i++) maximum[m][i] = Max::neutral(), sum[m][i] = 0.0f;
  float scale2 = scale * LOG2E;                      // exp x = 2^(x log2 e): one multiplication for both factors

  for (int key = 0, stage = 0; key < end; key += KEYS, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads();                               // this stage has arrived, and nobody reads the other one any more
    const T* keys = tiles + stage * 2 * TILE;
    if (key + KEYS < end) {
      T* next = tiles + (stage ^ 1) * 2 * TILE;
      copy_tile<D, KEYS, THREADS>(next, k, key + KEYS);
      copy_tile<D, KEYS, THREADS>(next + TILE, v, key + KEYS);
      cp_async_commit();
    }
    if (key > last) continue;                      // all of it lies in the future of this warp

    float p[M][KEYS / 8][4];
    product_transposed<D>(p, queries, keys);
    if (key + KEYS > first + 1) hide_future<false>(p, first, key);
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float top = maximum[m][half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(p[m][n][2 * half], p[m][n][2 * half + 1]));
        top = row_max(top);
        float rescale = exp2_fast((maximum[m][half] - top) * scale2), shift = top * scale2, total = 0.0f;
        maximum[m][half] = top;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; i++) {
            p[m][n][i] = exp2_fast(fmaf(p[m][n][i], scale2, -shift));
            total += p[m][n][i];
          }
        sum[m][half] = fmaf(sum[m][half], rescale, total);
#pragma unroll
        for (int n = 0; n < PADDED<D> / 8; n++) out[m][n][2 * half] *= rescale, out[m][n][2 * half + 1] *= rescale;
      }
    }
    add_product<D>(out, p, keys + TILE);
  }

  float inverse[M][2];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float total = row_sum(sum[m][half]);
      inverse[m][half] = 1.0f / total;
      int row = first + row_of(m, 2 * half);
      if (row < length && lane() % 4 == 0)
        lse[place.head * length + row] = maximum[m][half] * scale + logf(total);
    }
  store_rows<D>(place.plain(y), first, out, inverse);
}

// First pass of the gradient: dq, and for the second pass (lse log2 e, delta) of each query side by side.
template <class T, int D, int M, int WARPS, int KEYS, int CHUNK>
__global__ void __launch_bounds__(32 * WARPS)
attention_backward_query(const T* __restrict__ dy, const T* __restrict__ qkv, const T* __restrict__ y,
            const float* __restrict__ lse, T* __restrict__ dqkv, float* __restrict__ statistics,
            int heads, int length, int padded, float scale) {
  constexpr int QUERIES = 16 * M * WARPS, THREADS = 32 * WARPS;
  extern __shared__ __align__(16) unsigned char memory[];
  T* tiles = reinterpret_cast<T*>(memory);          // two stages of (keys, values)
  constexpr int TILE = KEYS * STRIDE<D>;

  const Place<D> place(heads, length, QUERIES);
  const auto q = place.queries(qkv), k = place.keys(qkv), v = place.values(qkv);

  int block_first = place.last_tile_first();
  int first = block_first + 16 * M * (threadIdx.x / 32), last = first + 16 * M - 1;
  int end = min(block_first + QUERIES, length);

  copy_tile<D, KEYS, THREADS>(tiles, k, 0);
  copy_tile<D, KEYS, THREADS>(tiles + TILE, v, 0);
  cp_async_commit();

  unsigned queries[M][PADDED<D> / 16][4], gradients[M][PADDED<D> / 16][4];
  float delta[M][2], lse2[M][2];
  load_operand<D>(queries, q, first);
  load_operand<D>(gradients, place.plain(dy), first);
  {
    unsigned outputs[M][PADDED<D> / 16][4];
    load_operand<D>(outputs, place.plain(y), first);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float total = 0.0f;
#pragma unroll
        for (int n = 0; n < PADDED<D> / 8; n++)
          total += dot2<T>(gradients[m][n / 2][n % 2 * 2 + half], outputs[m][n / 2][n % 2 * 2 + half]);
        delta[m][half] = row_sum(total);
        int row = first + row_of(m, 2 * half);
        lse2[m][half] = row < length ? lse[place.head * length + row] * LOG2E : 0.0f;
        if (lane() % 4 == 0)
          reinterpret_cast<float2*>(statistics)[place.head * padded + row] = make_float2(lse2[m][half], delta[m][half]);
      }
  }
  float dq[M][PADDED<D> / 8][4] = {};
  float scale2 = scale * LOG2E;

  for (int key = 0, stage = 0; key < end; key += KEYS, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads();
    const T* keys = tiles + stage * 2 * TILE;
    if (key + KEYS < end) {
      T* next = tiles + (stage ^ 1) * 2 * TILE;
      copy_tile<D, KEYS, THREADS>(next, k, key + KEYS);
      copy_tile<D, KEYS, THREADS>(next + TILE, v, key + KEYS);
      cp_async_commit();
    }
#pragma unroll
    for (int c = 0; c < KEYS; c += CHUNK) {
      if (key + c > last) break;
      float s[M][CHUNK / 8][4], ds[M][CHUNK / 8][4];
      product_transposed<D>(s, queries, keys + c * STRIDE<D>);
      product_transposed<D>(ds, gradients, keys + TILE + c * STRIDE<D>);
      if (key + c + CHUNK > first + 1) hide_future<false>(s, first, key + c);
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            float p = exp2_fast(fmaf(s[m][n][i], scale2, -lse2[m][i / 2]));
              ds[m][n][i] = p * (ds[m][n][i] - delta[m][i / 2]);
          }
      add_product<D>(dq, ds, keys + c * STRIDE<D>);
    }
  }
  float factor[M][2];
#pragma unroll
  for (int m = 0; m < M; m++) factor[m][0] = factor[m][1] = scale;
  store_rows<D>(place.queries(dqkv), first, dq, factor);
}

// Second pass: dk and dv. Rows are keys, columns queries: what is computed here is sᵀ, pᵀ and dsᵀ.
template <class T, int D, int M, int WARPS, int QUERIES, int CHUNK>
__global__ void __launch_bounds__(32 * WARPS)
attention_backward_key_value(const T* __restrict__ dy, const T* __restrict__ qkv, const float* __restrict__ statistics,
              T* __restrict__ dqkv, int heads, int length, int padded, float scale) {
  constexpr int KEYS = 16 * M * WARPS, THREADS = 32 * WARPS;
  extern __shared__ __align__(16) unsigned char memory[];
  T* tiles = reinterpret_cast<T*>(memory);          // two stages of (queries, gradients of y)
  constexpr int TILE = QUERIES * STRIDE<D>;
  float* table = reinterpret_cast<float*>(tiles + 4 * TILE);   // two stages of statistics

  const Place<D> place(heads, length, KEYS);
  const auto q = place.queries(qkv), k = place.keys(qkv), v = place.values(qkv);
  const auto g = place.plain(dy);
  statistics += place.head * padded * 2;

  int block_first = place.tile * KEYS, first = block_first + 16 * M * (threadIdx.x / 32);   // early keys are seen by the most queries

  auto copy = [&](int stage, int query) {
    copy_tile<D, QUERIES, THREADS>(tiles + stage * 2 * TILE, q, query);
    copy_tile<D, QUERIES, THREADS>(tiles + stage * 2 * TILE + TILE, g, query);
    for (int i = threadIdx.x * 4; i < QUERIES * 2; i += THREADS * 4)
      cp_async(table + stage * QUERIES * 2 + i, statistics + query * 2 + i);
    cp_async_commit();
  };
  int begin = block_first / QUERIES * QUERIES;
  copy(0, begin);
  unsigned keys[M][PADDED<D> / 16][4], values[M][PADDED<D> / 16][4];
  load_operand<D>(keys, k, first);
  load_operand<D>(values, v, first);
  float dk[M][PADDED<D> / 8][4] = {}, dv[M][PADDED<D> / 8][4] = {};
  float scale2 = scale * LOG2E;

  for (int query = begin, stage = 0; query < length; query += QUERIES, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads();
    if (query + QUERIES < length) copy(stage ^ 1, query + QUERIES);
    const T* queries = tiles + stage * 2 * TILE;
#pragma unroll
    for (int c = 0; c < QUERIES; c += CHUNK) {
      if (query + c + CHUNK <= first) continue;                // this warp's keys lie in the future of all of it
      float p[M][CHUNK / 8][4], ds[M][CHUNK / 8][4];
      product_transposed<D>(p, keys, queries + c * STRIDE<D>);
      product_transposed<D>(ds, values, queries + TILE + c * STRIDE<D>);
      if (query + c < first + 16 * M - 1) hide_future<true>(p, first, query + c);
#pragma unroll
      for (int n = 0; n < CHUNK / 8; n++) {
        const float4 two = *reinterpret_cast<const float4*>(table + 2 * (stage * QUERIES + c + column_of(n, 0)));
        const float lse2[2] = {two.x, two.z}, delta[2] = {two.y, two.w};
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            p[m][n][i] = exp2_fast(fmaf(p[m][n][i], scale2, -lse2[i % 2]));
            ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - delta[i % 2]);
          }
      }
      add_product<D>(dv, p, queries + TILE + c * STRIDE<D>);
      add_product<D>(dk, ds, queries + c * STRIDE<D>);
    }
  }
  float factor[M][2], one[M][2];
#pragma unroll
  for (int m = 0; m < M; m++) factor[m][0] = factor[m][1] = scale, one[m][0] = one[m][1] = 1.0f;
  store_rows<D>(place.keys(dqkv), first, dk, factor);
  store_rows<D>(place.values(dqkv), first, dv, one);
}
