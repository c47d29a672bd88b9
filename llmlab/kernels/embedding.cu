// Token and position embedding:  x[b, t] = wte[token[b, t]] + wpe[t],  and the gradients of both tables.
//
// Traffic: forward reads a row of each table for each place (repeated rows come from cache) and writes x once. Backward
//   reads dx twice, once for each table, and reads and writes each touched row of dwte and dwpe.
// Deterministic: the places are sorted by token (and among equals by place), so that equal tokens lie side by side as a run;
//   chunks of sorted places are summed, and runs that span chunks are put together in order.
// A token outside the vocabulary gives a row of NaN, never another token's row, and adds to no gradient.
// Source: the sorted segments of PyTorch's embedding_dense_backward.
#include "row.cuh"

constexpr int PLACE_BITS = 32;
constexpr int CHUNK = 32;  // sorted places that one block sums
constexpr int AHEAD = 4;   // places whose loads are under way together

// A block takes AHEAD places, whose loads are under way together.
template <class T, class I, int E>
__global__ void embedding_forward(T* x, const I* tokens, const T* wte, const T* wpe, index_t places, int positions, index_t V, index_t C) {
  const index_t first = static_cast<index_t>(blockIdx.x) * AHEAD;
  index_t token[AHEAD];
#pragma unroll
  for (int a = 0; a < AHEAD; a++) token[a] = first + a < places ? static_cast<index_t>(tokens[first + a]) : -1;
  for (index_t c = static_cast<index_t>(threadIdx.x) * E; c < C; c += blockDim.x * E) {
    Packed<T, E> of_token[AHEAD], of_position[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (token[a] >= 0 && token[a] < V) of_token[a] = Packed<T, E>::load(wte + token[a] * C + c);
      if (first + a < places) of_position[a] = Packed<T, E>::load(wpe + (first + a) % positions * C + c);
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (first + a >= places) break;
      float v[E], w[E];
      of_token[a].get(v);
      of_position[a].get(w);
#pragma unroll
      for (int e = 0; e < E; e++) v[e] = token[a] >= 0 && token[a] < V ? v[e] + w[e] : not_a_number();
      of_token[a].set(v);
      of_token[a].store(x + (first + a) * C + c);
    }
  }
}

// ---- The places sorted by token, and among equals by place: keys[i] = token and place as one number. A counting sort in
// four steps. The atomics count in whole numbers; the order of arrival, which they leave to chance, the last step undoes.
// Unknown tokens count as token V, behind all others.

template <class I> __device__ __forceinline__ index_t known_token(const I* tokens, index_t place, index_t V) {
  const index_t token = tokens[place];
  return token >= 0 && token < V ? token : V;
}

// counts[token] = how often it stands somewhere; arrivals[place] = how many came before it. counts starts as zeros.
template <class I>
__global__ void __launch_bounds__(256) count_tokens(int* counts, int* arrivals, const I* tokens, int places, index_t V) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place < places) arrivals[place] = atomicAdd(&counts[known_token(tokens, place, V)], 1);
}

// starts[token] = the sum of the counts of the tokens below it. Each block adds up all that comes before its own tokens,
// one to a thread, then those: less waiting than in one block that walks over all, and no order among blocks.
extern "C" __global__ void __launch_bounds__(1024) sum_counts(int* starts, const int* counts, index_t n) {
  __shared__ int before_block[WARP], of_warp[WARP];  // by warp
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  const index_t first = static_cast<index_t>(blockIdx.x) * blockDim.x, i = first + threadIdx.x;
  int before = 0;
#pragma unroll 8
  for (index_t k = threadIdx.x; k < first; k += blockDim.x) before += counts[k];
  const int mine = i < n ? counts[i] : 0;
  int sum = mine;
  for (int d = 1; d < WARP; d *= 2) {
    before += __shfl_xor_sync(ALL_LANES, before, d);
    const int below = __shfl_up_sync(ALL_LANES, sum, d);
    if (lane >= d) sum += below;
  }  // lane i holds the sum over lanes 0 to i
  if (lane == WARP - 1) before_block[warp] = before, of_warp[warp] = sum;
  __syncthreads();
  int start = sum - mine;
  for (int w = 0; w < warps; w++) start += before_block[w] + (w < warp ? of_warp[w] : 0);
  if (i < n) starts[i] = start;
}

// The places of one token side by side, in the order of their arrival.
template <class I>
__global__ void __launch_bounds__(256)
gather_places(int* gathered, const int* starts, const int* arrivals, const I* tokens, int places, index_t V) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place < places) gathered[starts[known_token(tokens, place, V)] + arrivals[place]] = place;
}

// In the order of their places: for each place a warp counts how many of its token stand before it, reading 32 of them at
// once. A thread for a place would wait for them one after the other, and for a frequent token there are thousands. The
// reads still grow with the square of a token's frequency: N²/32 if a batch of N is one token and nothing else.
template <class I>
__global__ void __launch_bounds__(256)
order_places(long long* keys, const int* gathered, const int* starts, const int* counts, const I* tokens, int places, index_t V) {
  const index_t place = (static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
  if (place >= places) return;
  const int lane = threadIdx.x % WARP;
  const index_t token = known_token(tokens, place, V);
  const int start = starts[token], count = counts[token];
  int rank = 0;
#pragma unroll 4
  for (int k = lane; k < count; k += WARP) rank += gathered[start + k] < place;
#pragma unroll
  for (int d = WARP / 2; d > 0; d /= 2) rank += __shfl_xor_sync(ALL_LANES, rank, d);
  if (lane == 0) keys[start + rank] = token << PLACE_BITS | place;
}

// ---- The sums.

__device__ __forceinline__ index_t token_of(long long key) { return key >> PLACE_BITS; }
__device__ __forceinline__ index_t place_of(long long key) { return key & ((1ll << PLACE_BITS) - 1); }

// row[e] = or += sum[e], at most 16 bytes at a time: the 8 sums that belong to a pack of 16-bit numbers are two packs.
template <bool ADD, int E> __device__ __forceinline__ void put_sums(float* row, const float (&sum)[E]) {
  constexpr int PART = E < 4 ? E : 4;
#pragma unroll
  for (int i = 0; i < E; i += PART) {
    Packed<float, PART> pack;
    float v[PART] = {};
    if (ADD) Packed<float, PART>::load(row + i).get(v);
#pragma unroll
    for (int e = 0; e < PART; e++) v[e] += sum[i + e];
    pack.set(v);
    pack.store(row + i);
  }
}

// Block (chunk, columns): the sums of the runs in its chunk. A run that lies in the chunk goes straight to dwte, to which no
// other block adds that row. One that comes from the chunk before leaves its sum in heads[chunk], one that only starts
// here in tails[chunk], for sum_spanning_runs.
template <class T, int E>
__global__ void __launch_bounds__(128)
sum_runs(float* dwte, float* heads, float* tails, const T* dx, const long long* keys, index_t places, index_t V, index_t C) {
  const index_t c = (static_cast<index_t>(blockIdx.y) * blockDim.x + threadIdx.x) * E;
  const index_t begin = static_cast<index_t>(blockIdx.x) * CHUNK, end = begin + CHUNK < places ? begin + CHUNK : places;
  if (c >= C) return;
  const index_t before = begin > 0 ? token_of(keys[begin - 1]) : -1, after = end < places ? token_of(keys[end]) : -1;
  index_t token = token_of(keys[begin]);
  float sum[E] = {};
  auto finish_run = [&](bool is_last) {
    if (token == V) return;
    if (token == before) {
      put_sums<false>(heads + blockIdx.x * C + c, sum);
    } else if (is_last && token == after) {
      put_sums<false>(tails + blockIdx.x * C + c, sum);
    } else {
      put_sums<true>(dwte + token * C + c, sum);
    }
  };
  for (index_t i = begin; i < end; i += AHEAD) {
    Packed<T, E> pack[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++)
      if (i + a < end) pack[a] = Packed<T, E>::load(dx + place_of(keys[i + a]) * C + c);
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (i + a >= end) break;
      const index_t next = token_of(keys[i + a]);
      if (next != token) {
        finish_run(false);
        token = next;
#pragma unroll
        for (int e = 0; e < E; e++) sum[e] = 0.0f;
      }
      float v[E];
      pack[a].get(v);
#pragma unroll
      for (int e = 0; e < E; e++) sum[e] += v[e];
    }
  }
  finish_run(true);
}

// Block (chunk, columns): if a run starts in this chunk and goes on, add its parts, in order, to its row of dwte.
template <int E>
__global__ void __launch_bounds__(128)
sum_spanning_runs(float* dwte, const float* heads, const float* tails, const long long* keys, index_t places, index_t V, index_t C) {
  const index_t c = (static_cast<index_t>(blockIdx.y) * blockDim.x + threadIdx.x) * E;
  const index_t begin = static_cast<index_t>(blockIdx.x) * CHUNK, end = begin + CHUNK;
  if (c >= C || end >= places) return;
  const index_t token = token_of(keys[end - 1]);
  const bool starts_before = begin > 0 && token_of(keys[begin - 1]) == token;
  if (token == V || starts_before || token_of(keys[end]) != token) return;

  index_t low = end, high = places;  // where the run ends: the first key past it, by bisection
  while (low < high) {
    const index_t middle = (low + high) / 2;
    if (token_of(keys[middle]) == token) low = middle + 1;
    else high = middle;
  }
  const index_t last = (low - 1) / CHUNK;
  float sum[E];
#pragma unroll
  for (int e = 0; e < E; e++) sum[e] = tails[blockIdx.x * C + c + e];
#pragma unroll 4
  for (index_t chunk = blockIdx.x + 1; chunk <= last; chunk++) {
#pragma unroll
    for (int e = 0; e < E; e++) sum[e] += heads[chunk * C + c + e];
  }
  put_sums<true>(dwte + token * C + c, sum);
}

// dwpe[t] += the sum over b of dx[b, t]: a thread owns E columns of a position.
template <class T, int E>
__global__ void __launch_bounds__(256)
sum_positions(float* dwpe, const T* dx, index_t B, index_t positions, index_t C) {
  const index_t i = (static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x) * E;  // in a sequence of T * C numbers
  if (i >= positions * C) return;
  float sum[E] = {}, v[E];
#pragma unroll 8
  for (index_t b = 0; b < B; b++) {
    Packed<T, E>::load(dx + b * positions * C + i).get(v);
#pragma unroll
    for (int e = 0; e < E; e++) sum[e] += v[e];
  }
  put_sums<true>(dwpe + i, sum);
}
