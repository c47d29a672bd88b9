// Cross-entropy of softmax(logits) against integer targets, and its gradient.
//   lse = log sum exp(z),   loss = lse - z[target],   dz = w (exp(z - lse) - [v = target])
//
// Fused: softmax, loss, and the gradient by the logits; neither probabilities nor their logarithms reach memory.
// Traffic: forward_backward reads the logits once and writes dlogits once, where it may, over the logits themselves.
//   The resident_ kernel holds rows in shared memory, which must have room for two, as whole 16-byte packs.
//   Otherwise a row is read twice, the second time mostly from the L2, where it was a moment ago.
// Launch: a block a row, of up to 1024 threads; resident_: as many blocks as run at once, of up to 512, which walk over rows.
// Deterministic: a row's sum is added in an order that only the launch shape decides; counts are whole numbers.
// A target outside the vocabulary that is not ignored gives NaN as the row's loss and gradient: no wrong number, and an
// optimizer that refuses non-finite gradients refuses the step.
// Source: the online maximum and sum of Milakov and Gimelshein 2018; gradient in the same pass as in llm.c and Liger.
#include "row.cuh"
#include "tensor_core.cuh"

constexpr float LOWEST = -3.402823466e38f;  // the neutral element of max; unlike -inf it can be subtracted from itself

// e^v. float32 wants every digit. Results rounded to 16 bits lose more than the special function unit's 2^v does; taken
// by its name, without the handling of subnormal numbers that exp2f adds, it is a third of the instructions.
template <class T> __device__ __forceinline__ float exponential(float v) {
  constexpr float LOG2_E = 1.4426950408889634f;
#ifdef LLMLAB_EMULATED
  return exp2f(v * LOG2_E);
#else
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(v * LOG2_E));
  return power;
#endif
}
template <> __device__ __forceinline__ float exponential<float>(float v) { return expf(v); }

// A maximum m, and the sum of exp(z - m): how softmax's denominator is added up without overflow.
struct Denominator { float m, sum; };

template <class T> __device__ __forceinline__ Denominator join(Denominator a, float m_all) {
  return {m_all, a.sum * exponential<T>(a.m - m_all)};
}

// All threads' denominators as one, in every thread of the block. The two buffers take turns, so one barrier is enough.
template <class T> __device__ __forceinline__ Denominator block_join(Denominator d, int& turn) {
  __shared__ Denominator of_warp[2][WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  d = join<T>(d, warp_max(d.m));
  d.sum = warp_sum(d.sum);  // each lane holds its warp's
  turn ^= 1;
  if (lane == 0) of_warp[turn][warp] = d;
  __syncthreads();
  d = lane < warps ? of_warp[turn][lane] : Denominator{LOWEST, 0.0f};
  d = join<T>(d, warp_max(d.m));
  d.sum = warp_sum(d.sum);  // each lane holds the block's
  return d;
}

// Adds E numbers to a denominator, rescaling once for all of them.
template <class T, int E> __device__ __forceinline__ void add(Denominator& d, const float (&v)[E]) {
  float m = d.m;
#pragma unroll
  for (int e = 0; e < E; e++) m = fmaxf(m, v[e]);
  if (m > d.m) d = join<T>(d, m);
#pragma unroll
  for (int e = 0; e < E; e++) d.sum += exponential<T>(v[e] - d.m);
}

// Columns from `vocabulary` on are padding, and count as if they were not there.
template <int E> __device__ __forceinline__ void hide_padding(float (&v)[E], index_t c, int vocabulary) {
  if (c + E <= vocabulary) return;
#pragma unroll
  for (int e = 0; e < E; e++)
    if (c + e >= vocabulary) v[e] = negative_infinity();
}

// What a row is about: its target, its weight in dlogits, and whether it counts.
struct Target {
  int column;
  float w;
  bool ignored, valid;
};

// dloss is one number (stride 0), or one a row (stride 1), or null: then `dloss_value`. count is null unless the mean is taken.
struct Weights {
  const float* dloss;
  int stride;
  float value;
  const long long* count;
};

template <class I>
__device__ __forceinline__ Target target_of(index_t row, const I* targets, long long ignore_index, int vocabulary, Weights weights) {
  const long long target = targets[row];
  const bool ignored = target == ignore_index, valid = !ignored && target >= 0 && target < vocabulary;
  float w = weights.dloss != nullptr ? weights.dloss[row * weights.stride] : weights.value;
  if (weights.count != nullptr) w /= static_cast<float>(weights.count[0] > 0 ? weights.count[0] : 1);
  return {valid ? static_cast<int>(target) : -1, valid ? w : ignored ? 0.0f : not_a_number(), ignored, valid};
}

__device__ __forceinline__ float loss_of(const Target& target, float lse, float at_target) {
  return target.valid ? lse - at_target : target.ignored ? 0.0f : not_a_number();
}

// Softmax's probability, times the weight of its row:  w p = factor exp(z - shift).
struct Probability { float shift, factor; };

// From the denominator rather than from lse, which float32 holds to within 2^-24 |lse|: an error of p many times its last place.
__device__ __forceinline__ Probability probability(const Denominator& d, const Target& target) {
  return {d.m, target.w / d.sum};
}

// dz = w (p - [v = target]) for the E columns from c; exactly 0 in the padding.
template <class T, int E>
__device__ __forceinline__ void gradient(float (&v)[E], index_t c, Probability p, const Target& target, int vocabulary) {
#pragma unroll
  for (int e = 0; e < E; e++) v[e] = p.factor * exponential<T>(v[e] - p.shift);
  if (target.column >= c && target.column < c + E) {
#pragma unroll
    for (int e = 0; e < E; e++)
      if (c + e == target.column) v[e] -= target.w;
  }
  if (c + E > vocabulary) {
#pragma unroll
    for (int e = 0; e < E; e++)
      if (c + e >= vocabulary) v[e] = 0.0f;
  }
}

// ---- Rows of any width at any address: read, and read again.

template <bool ALIGNED, class T>
__device__ __forceinline__ Denominator streamed_denominator(const T* z, int vocabulary, int V, int& turn) {
  constexpr int E = Pack<T>::size;
  Denominator d = {LOWEST, 0.0f};
  float v[E];
  for (index_t c = first_pack(z) + static_cast<index_t>(threadIdx.x) * E; c < vocabulary; c += blockDim.x * E) {
    load_row<ALIGNED>(v, z, c, V, negative_infinity());
    hide_padding(v, c, vocabulary);
    add<T>(d, v);
  }
  return block_join<T>(d, turn);
}

template <bool ALIGNED, class T>
__device__ __forceinline__ void stream_gradient(T* dz, const T* z, Probability p, const Target& target, int vocabulary, int V) {
  constexpr int E = Pack<T>::size;
  float v[E];
  for (index_t c = first_pack(z) + static_cast<index_t>(threadIdx.x) * E; c < V; c += blockDim.x * E) {
    if (target.ignored) {  // exactly 0, whatever stands there
#pragma unroll
      for (int e = 0; e < E; e++) v[e] = 0.0f;
    } else {
      load_row<ALIGNED>(v, z, c, V, 0.0f);
      gradient<T>(v, c, p, target, vocabulary);
    }
    store_row<ALIGNED>(dz, c, V, v);
  }
}

template <class T, class I, bool ALIGNED>
__global__ void __launch_bounds__(1024, 1)
cross_entropy_forward(float* losses, float* lse, const T* logits, const I* targets, long long ignore_index, int vocabulary, int V) {
  const index_t row = blockIdx.x;
  const T* z = logits + row * V;
  int turn = 0;
  const Denominator d = streamed_denominator<ALIGNED>(z, vocabulary, V, turn);
  if (threadIdx.x > 0) return;
  const Target target = target_of(row, targets, ignore_index, vocabulary, {nullptr, 0, 1.0f, nullptr});
  lse[row] = d.m + logf(d.sum);
  losses[row] = loss_of(target, lse[row], target.valid ? to_float(z[target.column]) : 0.0f);
}

// dlogits may be the logits.
template <class T, class I, bool ALIGNED>
__global__ void __launch_bounds__(1024, 1)
cross_entropy_backward(T* dlogits, const T* logits, const I* targets, const float* lse, const float* dloss, int dloss_stride,
                       float dloss_value, const long long* count, long long ignore_index, int vocabulary, int V) {
  const index_t row = blockIdx.x;
  const Target target = target_of(row, targets, ignore_index, vocabulary, {dloss, dloss_stride, dloss_value, count});
  stream_gradient<ALIGNED>(dlogits + row * V, logits + row * V, {lse[row], target.w}, target, vocabulary, V);
}

template <class T, class I, bool ALIGNED>
__global__ void __launch_bounds__(1024, 1)
cross_entropy_forward_backward(float* losses, T* dlogits, const T* logits, const I* targets, const float* dloss,
                               int dloss_stride, float dloss_value, const long long* count, long long ignore_index,
                               int vocabulary, int V) {
  const index_t row = blockIdx.x;
  const T* z = logits + row * V;
  const Target target = target_of(row, targets, ignore_index, vocabulary, {dloss, dloss_stride, dloss_value, count});
  const float at_target = target.valid ? to_float(z[target.column]) : 0.0f;
  int turn = 0;
  Denominator d = {0.0f, 1.0f};
  if (!target.ignored) d = streamed_denominator<ALIGNED>(z, vocabulary, V, turn);  // ends behind a barrier: all have read z
  if (threadIdx.x == 0) losses[row] = loss_of(target, d.m + logf(d.sum), at_target);
  stream_gradient<ALIGNED>(dlogits + row * V, z, probability(d, target), target, vocabulary, V);
}

// ---- Rows of whole packs, of which shared memory holds one for each of at least two blocks: read once.

// Row after row; while this block waits for its next row, another block of the multiprocessor works on its own. A thread
// works on what it copied itself, so that its own wait is enough; only the target's logit is read behind a barrier.
template <class T, class I>
__global__ void __launch_bounds__(512, 2)
resident_forward_backward(float* losses, T* dlogits, const T* logits, const I* targets, const float* dloss, int dloss_stride,
                          float dloss_value, const long long* count, long long ignore_index, int vocabulary, int V, index_t N) {
  constexpr int E = 16 / sizeof(T);
  extern __shared__ uint4 z[];  // the row
  const int first = threadIdx.x * E, step = blockDim.x * E;
  int turn = 0;
  for (index_t row = blockIdx.x; row < N; row += gridDim.x) {
    for (int c = first; c < V; c += step) cp_async(&z[c / E], logits + row * V + c);
    cp_async_commit();
    const Target target = target_of(row, targets, ignore_index, vocabulary, {dloss, dloss_stride, dloss_value, count});
    float v[E];
    Denominator d = {LOWEST, 0.0f};
    cp_async_wait<0>();
#pragma unroll 4
    for (int c = first; c < vocabulary; c += step) {
      Packed<T, E>::from(z[c / E]).get(v);
      hide_padding(v, c, vocabulary);
      add<T>(d, v);
    }
    d = block_join<T>(d, turn);
    if (threadIdx.x == 0)
      losses[row] = loss_of(target, d.m + logf(d.sum),
                            target.valid ? to_float(reinterpret_cast<const T*>(z)[target.column]) : 0.0f);
    const Probability p = probability(d, target);
#pragma unroll 4
    for (int c = first; c < V; c += step) {
      Packed<T, E> pack = {};  // exactly 0 in an ignored row
      if (!target.ignored) {
        Packed<T, E>::from(z[c / E]).get(v);
        gradient<T>(v, c, p, target, vocabulary);
        pack.set(v);
      }
      pack.store(dlogits + row * V + c);
    }
    __syncthreads();  // thread 0 has read the target's logit
  }
}

// ---- Over the rows. One block each: a pass over N numbers is short beside a pass over N rows.

constexpr int AHEAD = 16;  // loads of a thread under way together

// count = the number of targets that are not ignored.
template <class I>
__global__ void __launch_bounds__(1024) count_valid(long long* count, const I* targets, long long ignore_index, index_t N) {
  int mine = 0;
  for (index_t i = threadIdx.x; i < N; i += AHEAD * blockDim.x) {
    long long target[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) target[a] = i + a * blockDim.x < N ? targets[i + a * blockDim.x] : ignore_index;
#pragma unroll
    for (int a = 0; a < AHEAD; a++) mine += target[a] != ignore_index;
  }
  __shared__ int of_thread[1024];
  of_thread[threadIdx.x] = mine;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
  }
  if (threadIdx.x == 0) count[0] = of_thread[0];
}

// loss = the sum of losses, divided by count unless that is null. No valid row at all: 0.
extern "C" __global__ void __launch_bounds__(1024)
reduce_losses(float* loss, const float* losses, const long long* count, index_t N) {
  float sum = 0.0f;
  for (index_t i = threadIdx.x; i < N; i += AHEAD * blockDim.x) {
    float of_row[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) of_row[a] = i + a * blockDim.x < N ? losses[i + a * blockDim.x] : 0.0f;
#pragma unroll
    for (int a = 0; a < AHEAD; a++) sum += of_row[a];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) loss[0] = count != nullptr && count[0] > 0 ? sum / static_cast<float>(count[0]) : sum;
}
