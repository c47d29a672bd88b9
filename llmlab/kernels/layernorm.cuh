// Layer normalisation of rows that fit into registers: the device code of layernorm.cu and residual_layernorm.cu.
//
// A block holds blockDim.x / (32*W) teams of W warps. All its threads meet at its barriers: a team without a row goes through
// the motions with zero columns.
#pragma once
#include "row.cuh"
#include "tensor_core.cuh"

// ---- Sums over a team.

__device__ __forceinline__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ __forceinline__ float3 operator+(float3 a, float3 b) { return make_float3(a.x + b.x, a.y + b.y, a.z + b.z); }
__device__ __forceinline__ float2 warp_sum(float2 v) { return make_float2(warp_sum(v.x), warp_sum(v.y)); }
__device__ __forceinline__ float3 warp_sum(float3 v) { return make_float3(warp_sum(v.x), warp_sum(v.y), warp_sum(v.z)); }

// The sum of v over the team, in every thread of it; all threads of the block call it together. The two buffers take
// turns, so one barrier a sum is enough: whoever writes buffer A again has passed the barrier of buffer B, which
// nobody reaches before it has read A.
template <int W, class V>
__device__ __forceinline__ V team_sum(V v, int& turn) {
  v = warp_sum(v);  // each lane holds its warp's sum
  if constexpr (W > 1) {
    __shared__ V sums[2][WARP];
    const int warp = threadIdx.x / WARP, first = warp / W * W;
    turn ^= 1;
    if (threadIdx.x % WARP == 0) sums[turn][warp] = v;
    __syncthreads();
    v = sums[turn][first];
#pragma unroll
    for (int w = 1; w < W; w++) v = v + sums[turn][first + w];
  }
  return v;
}

// ---- Forward.

// A row's statistics. `shift` is the mean of x - mean: what rounding took from the mean. It matters when the mean is large
// beside the spread of the row, and costs one more addition an element.
struct Statistics { float mean, shift, rstd; };

// The sum of the row.
template <class T, int E, int K, int W>
__device__ __forceinline__ float sum_of(const Row<T, E, K, W>& x) {
  float sum = 0.0f, v[E];
#pragma unroll
  for (int k = 0; k < K; k++) {
    x.pack[k].get(v);
#pragma unroll
    for (int e = 0; e < E; e++) sum += v[e];
  }
  return sum;
}

// The sums of d and of d^2, with d = x - mean.
template <class T, int E, int K, int W>
__device__ __forceinline__ float2 sums_about(float mean, Row<T, E, K, W>& x, int thread, int C) {
  float2 sums = make_float2(0.0f, 0.0f);
  float v[E];
  x.keep_packed();
#pragma unroll
  for (int k = 0; k < K; k++) {
    if (column_of<E, W>(k, thread) >= C) continue;
    x.pack[k].get(v);
#pragma unroll
    for (int e = 0; e < E; e++) {
      const float d = v[e] - mean;
      sums.x += d;
      sums.y += d * d;
    }
  }
  return sums;
}

// From the sums of d and d^2. Two passes, for one pass by E[x^2] - E[x]^2 would lose every digit on a row whose mean is
// large beside its spread; here the d are small, and so is what is subtracted. Where the squares overflow there is no
// variance: rstd is NaN, for neither 0 (of an infinite one) nor 1/sqrt(eps) (of inf - inf, which fmaxf would take for 0) would
// tell anyone.
__device__ __forceinline__ Statistics statistics(float mean, float2 sums, int C, float eps) {
  const float shift = sums.x / C, variance = sums.y / C - shift * shift;
  const float rstd = rsqrtf((variance < 0.0f ? 0.0f : variance) + eps);
  return {mean, shift, rstd > 0.0f ? rstd : not_a_number()};
}

// y = (x - mean) * rstd * weight + bias. With the fma spelled out, forward and recompute give the same bits.
__device__ __forceinline__ float normalised(float x, Statistics s, float weight, float bias) {
  return fmaf((x - s.mean - s.shift) * s.rstd, weight, bias);
}

// weight and bias are read here, pack by pack, and not kept: after the first rows they come from the L1.
template <class T, int E, int K, int W>
__device__ __forceinline__ void store_normalised(T* y, Row<T, E, K, W>& x, const T* __restrict__ weight,
                                                 const T* __restrict__ bias, Statistics s, int thread, int C) {
  x.keep_packed();
#pragma unroll
  for (int k = 0; k < K; k++) {
    const int column = column_of<E, W>(k, thread);
    if (column >= C) continue;
    float v[E], w[E], b[E];
    x.pack[k].get(v);
    Packed<T, E>::load(weight + column).get(w);
    Packed<T, E>::load(bias + column).get(b);
#pragma unroll
    for (int e = 0; e < E; e++) v[e] = normalised(v[e], s, w[e], b[e]);
    Packed<T, E> pack;
    pack.set(v);
    pack.store(y + column);
  }
}

// r = x + (branch + branch_bias), rounded to T as it is stored: the statistics are those of the stored row.
template <class T, int E, int K, int W>
__device__ __forceinline__ void add_branch(Row<T, E, K, W>& x, const Row<T, E, K, W>& branch, const T* __restrict__ branch_bias,
                                           int thread, int C) {
#pragma unroll
  for (int k = 0; k < K; k++) {
    const int column = column_of<E, W>(k, thread);
    if (column >= C) continue;
    float v[E], u[E], b[E] = {};
    x.pack[k].get(v);
    branch.pack[k].get(u);
    if (branch_bias != nullptr) Packed<T, E>::load(branch_bias + column).get(b);
#pragma unroll
    for (int e = 0; e < E; e++) v[e] += u[e] + b[e];
    x.pack[k].set(v);
  }
}

// What forward_row does with a row: normalise it; add the branch to it first; or normalise it by known statistics.
enum Forward { PLAIN, BRANCH, RECOMPUTE };

// A team takes one row. Its registers hold little else, so many teams are resident, and while some wait for their rows others
// reduce or store theirs; a loop over rows with the next one fetched ahead needs twice the registers, and is slower.
template <Forward KIND, class T, int E, int K, int W>
__device__ __forceinline__ void forward_row(
    T* r, T* y, float* mean, float* rstd, const T* x, const T* branch, const T* weight, const T* bias,
    const T* branch_bias, index_t N, int C, float eps) {
  const int thread = threadIdx.x % (WARP * W), team = threadIdx.x / (WARP * W);
  const int teams = blockDim.x / (WARP * W);
  const index_t row = static_cast<index_t>(blockIdx.x) * teams + team;
  const int columns = row < N ? C : 0;
  Row<T, E, K, W> now;
  now.load(x + row * C, thread, columns);
  if (KIND == BRANCH) {
    Row<T, E, K, W> of_branch;
    of_branch.load(branch + row * C, thread, columns);
    add_branch(now, of_branch, branch_bias, thread, columns);
    now.store(r + row * C, thread, columns);
  }
  int turn = 0;
  float row_mean = 0.0f;
  if (KIND != RECOMPUTE) row_mean = team_sum<W>(sum_of(now), turn) / C;
  else if (row < N) row_mean = mean[row];
  const float2 sums = team_sum<W>(sums_about(row_mean, now, thread, columns), turn);
  Statistics s = statistics(row_mean, sums, C, eps);
  if (KIND == RECOMPUTE && row < N) s.rstd = rstd[row];
  store_normalised(y + row * C, now, weight, bias, s, thread, columns);
  if (KIND != RECOMPUTE && row < N && thread == 0) {
    mean[row] = s.mean;
    rstd[row] = s.rstd;
  }
}

// ---- Backward.

// Rows on their way: a ring of STAGES slots in shared memory for each team, filled by asynchronous copies. A slot holds
// the packs of R rows: dy, x and maybe dr. A thread reads only what it copied itself, so that its own wait is enough and
// no barrier is needed; and the rows take no registers, which the sums need.
template <class T, int E, int K, int W, int R, int STAGES>
struct Ring {
  using Memory = typename Packed<T, E>::Memory;
  using Place = typename Access<sizeof(Memory) < 4 ? 4 : sizeof(Memory)>::type;  // no two threads share a word
  static constexpr int PACKS = STAGES * R * K * WARP * W;
  Place* places;  // (STAGES, R, K, 32*W)

  __device__ __forceinline__ Place* at(int stage, int r, int k, int thread) const {
    return places + ((stage * R + r) * K + k) * (WARP * W) + thread;
  }
  __device__ __forceinline__ void fetch(int stage, int r, const T* row, int thread, int C) const {
#pragma unroll
    for (int k = 0; k < K; k++) {
      const int column = column_of<E, W>(k, thread);
      if (column >= C) continue;
      if constexpr (sizeof(Memory) == 16) cp_async(at(stage, r, k, thread), row + column);
      else *at(stage, r, k, thread) = *reinterpret_cast<const Memory*>(row + column);
    }
  }
  __device__ __forceinline__ void get(int stage, int r, int k, int thread, float (&v)[E]) const {
    Packed<T, E>::from(static_cast<Memory>(*at(stage, r, k, thread))).get(v);
  }
};

// The end of stage one: all threads lay down their sums, then each adds up some columns over the teams, always in the same
// order, and writes the block's totals. Sum i of a thread lies a pitch of 32*W + 4 floats from its sum i + 1: whether the
// lanes of a warp are 32 threads at one i, or 4 threads at 8 successive i, they meet 32 different banks.
template <int S, int E, int K, int W>
__device__ __forceinline__ void write_block_sums(float* __restrict__ partial, const float (&sums)[S][K][E], float* laid, int C) {
  constexpr int PITCH = WARP * W + 4, SUMS = S * K * E;  // laid is (teams, S, K, E, PITCH)
  const int thread = threadIdx.x % (WARP * W), team = threadIdx.x / (WARP * W), teams = blockDim.x / (WARP * W);
  __syncthreads();  // no thread still reads its rows there
#pragma unroll
  for (int i = 0; i < SUMS; i++) laid[(team * SUMS + i) * PITCH + thread] = sums[i / (K * E)][i / E % K][i % E];
  __syncthreads();
#pragma unroll
  for (int s = 0; s < S; s++) {
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
      const int k = c / (E * WARP * W), of_thread = c / E % (WARP * W), e = c % E;
      const float* column = laid + ((s * K + k) * E + e) * PITCH + of_thread;
      float sum = 0.0f;
      for (int t = 0; t < teams; t++) sum += column[t * SUMS * PITCH];
      partial[s * C + c] = sum;
    }
  }
}

// Each team walks over rows, and while it works on one, copies of its next are under way: that, rather than many resident
// warps, hides the memory's latency, since the sums leave registers for few warps. The loop runs as long as the block's
// first team has a row.
//
// With g = dy * weight and xhat = (x - mean) * rstd:
//   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dr,   dweight += dy * xhat,   dbias += dy
template <bool DR, bool DX_SUM, int STAGES, class T, int E, int K, int W>
__device__ __forceinline__ void backward_rows(T* dx, float* __restrict__ partials, const T* dr, const T* dy, const T* x,
                                              const T* __restrict__ weight, const float* __restrict__ mean,
                                              const float* __restrict__ rstd, index_t N, int C) {
  constexpr int DY = 0, X = 1, DR_ROW = 2, ROWS = DR ? 3 : 2;
  using Rows = Ring<T, E, K, W, ROWS, STAGES>;
  extern __shared__ uint4 shared[];  // the weights, as a ring of one slot, then a ring for each team
  const int thread = threadIdx.x % (WARP * W), team = threadIdx.x / (WARP * W), teams = blockDim.x / (WARP * W);
  const Ring<T, E, K, W, 1, 1> weights{reinterpret_cast<typename Rows::Place*>(shared)};
  const Rows rows{weights.places + weights.PACKS + team * Rows::PACKS};

  // What this thread has summed over its rows: dweight, dbias and, for a branch with a bias, dx.
  constexpr int S = DX_SUM ? 3 : 2, DWEIGHT = 0, DBIAS = 1, DX = 2;
  float sums[S][K][E];
#pragma unroll
  for (int i = 0; i < S * K * E; i++) sums[i / (K * E)][i / E % K][i % E] = 0.0f;

  auto fetch = [&](int stage, index_t row) {  // one group of copies; an empty one past the last row
    const int columns = row < N ? C : 0;
    rows.fetch(stage, DY, dy + row * C, thread, columns);
    rows.fetch(stage, X, x + row * C, thread, columns);
    if (DR) rows.fetch(stage, DR_ROW, dr + row * C, thread, columns);
    cp_async_commit();
  };
  const index_t stride = static_cast<index_t>(gridDim.x) * teams;
  index_t row = static_cast<index_t>(blockIdx.x) * teams + team;
  if (team == 0) weights.fetch(0, 0, weight, thread, C);  // these join the first row's group
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) fetch(s, row + s * stride);
  cp_async_wait<STAGES - 2>();
  __syncthreads();  // team 0 has waited for the weights; now all teams may read them

  float next_mean = row < N ? mean[row] : 0.0f, next_rstd = row < N ? rstd[row] : 0.0f;
  int turn = 0;
  for (int stage = 0; row - team < N; row += stride, stage = (stage + 1) % STAGES) {
    const float m = next_mean, rs = next_rstd;
    const index_t ahead = row + stride;
    next_mean = ahead < N ? mean[ahead] : 0.0f;
    next_rstd = ahead < N ? rstd[ahead] : 0.0f;
    cp_async_wait<STAGES - 2>();  // this row is here
    fetch((stage + STAGES - 1) % STAGES, row + (STAGES - 1) * stride);  // into the slot of the row before

    const int columns = row < N ? C : 0;
    float dy_k[E], x_k[E], w_k[E], dx_k[E];
    float3 of = make_float3(0.0f, 0.0f, 0.0f);  // the sums of d = x - mean, of g, and of g * d
#pragma unroll
    for (int k = 0; k < K; k++) {
      if (column_of<E, W>(k, thread) >= columns) continue;
      rows.get(stage, DY, k, thread, dy_k);
      rows.get(stage, X, k, thread, x_k);
      weights.get(0, 0, k, thread, w_k);
#pragma unroll
      for (int e = 0; e < E; e++) {
        const float d = x_k[e] - m, g = dy_k[e] * w_k[e];
        of.x += d;
        of.y += g;
        of.z += g * d;
      }
    }
    of = team_sum<W>(of, turn);
    const float shift = of.x / C, mean_g = of.y / C, mean_gx = (of.z - shift * of.y) * rs / C;
#pragma unroll
    for (int k = 0; k < K; k++) {
      const int column = column_of<E, W>(k, thread);
      if (column >= columns) continue;
      rows.get(stage, DY, k, thread, dy_k);
      rows.get(stage, X, k, thread, x_k);
      weights.get(0, 0, k, thread, w_k);
      if (DR) rows.get(stage, DR_ROW, k, thread, dx_k);
#pragma unroll
      for (int e = 0; e < E; e++) {
        const float xhat = (x_k[e] - m - shift) * rs, g = dy_k[e] * w_k[e];
        const float through = (g - mean_g - xhat * mean_gx) * rs;
        dx_k[e] = DR ? dx_k[e] + through : through;
        sums[DWEIGHT][k][e] += dy_k[e] * xhat;
        sums[DBIAS][k][e] += dy_k[e];
        if constexpr (DX_SUM) sums[DX][k][e] += dx_k[e];
      }
      Packed<T, E> pack;
      pack.set(dx_k);
      pack.store(dx + row * C + column);
    }
  }

  float* partial = partials + static_cast<index_t>(blockIdx.x) * S * C;  // partials is (gridDim.x, S, C)
  write_block_sums<S, E, K, W>(partial, sums, reinterpret_cast<float*>(shared), C);
}
