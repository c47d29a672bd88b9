// The optimizer's step over flat buffers, in two launches: the sum of the gradient's squares, then all the rest.
//
// Fused: the norm, unscale, clip, both moments, bias correction, decoupled decay, the master copy and its rounding to the
//   compute dtype, in one pass; whether the step happens at all is decided on the device, so the host never waits.
// Traffic: the sum reads the gradient once (4 bytes a parameter). The update reads gradient, m, v, master and writes m,
//   v, master and the compute copy, each once (28 bytes, plus the copy's 2 or 4).
// Launch: one dimension, packs of E = 4 elements (16 bytes a buffer). The sum: a block a multiprocessor, so that few partial
//   sums are left. The update: a thread a pack, which is faster than blocks that walk over the buffers; while a block's
//   packs are on their way, one of its warps adds up the partial sums and works out the shared scalars.
// Deterministic: the squares are summed in two stages in a fixed order; the rest is elementwise.
// Source: Loshchilov and Hutter 2019; one pass over flat buffers as in Apex's multi_tensor_adam and llm.c.
#include "row.cuh"

// The squares are summed in float64: no finite float32 overflows there, no small one vanishes, and inf or NaN in any
// element comes out as inf or NaN. Reading memory takes longer than this, even where float64 is slow.
__device__ __forceinline__ double warp_sum(double v) {
#pragma unroll
  for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(ALL_LANES, v, d);
  return v;  // in all lanes the same bits
}

// In warp 0.
__device__ __forceinline__ double block_sum(double v) {
  __shared__ double of_warp[WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  v = warp_sum(v);
  if (lane == 0) of_warp[warp] = v;
  __syncthreads();
  return warp_sum(lane < warps ? of_warp[lane] : 0.0);
}

// What follows from the number t of an update, worked out once for all blocks of the next kernel: pow is dear.
struct Update { double t, correction, root_scale; };

// partials[blockIdx.x] = the sum of the squares of this block's packs. Behind them, an Update with the number that this one
// gets if it is made: the next kernel writes `updates`, and with the number here none of its blocks has to read it.
template <int E>
__global__ void __launch_bounds__(1024)
sum_squares(double* partials, const float* __restrict__ grad, const long long* updates, double beta1, double beta2, index_t n) {
  constexpr int AHEAD = 16 / E;  // loads under way together
  const index_t stride = static_cast<index_t>(gridDim.x) * blockDim.x * E;
  double sum = 0.0;
  for (index_t i = (static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x) * E; i < n; i += AHEAD * stride) {
    float v[AHEAD][E] = {};
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (i + a * stride + E <= n) {
        Packed<float, E>::load(grad + i + a * stride).get(v[a]);
      } else {
        for (int e = 0; e < E; e++)
          if (i + a * stride + e < n) v[a][e] = grad[i + a * stride + e];
      }
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++)
#pragma unroll
      for (int e = 0; e < E; e++) sum += static_cast<double>(v[a][e]) * v[a][e];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    const double t = static_cast<double>(updates[0] + 1);
    *reinterpret_cast<Update*>(partials + gridDim.x) = {t, 1.0 - pow(beta1, t), 1.0 / sqrt(1.0 - pow(beta2, t))};
  }
}

// A scalar that the host knows, or one that lies on the device.
__device__ __forceinline__ float scalar(const float* at, float value) { return at != nullptr ? *at : value; }

// What all elements share; rest = 1 - beta.
struct Step { float scale, decay, length, root_scale, beta1, rest1, beta2, rest2, eps; };

// compute is null if there is no copy.
template <class T> struct Buffers {
  float* master;
  const float* grad;
  float *m, *v;
  T* compute;
};

// E neighbours of each buffer on their way through registers.
template <class T, int E> struct Elements {
  Packed<float, E> master, grad, m, v;

  __device__ __forceinline__ void load(const Buffers<T>& buffers, index_t i) {
    grad = Packed<float, E>::load(buffers.grad + i);
    m = Packed<float, E>::load(buffers.m + i);
    v = Packed<float, E>::load(buffers.v + i);
    master = Packed<float, E>::load(buffers.master + i);
  }

  // g = grad * scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
  // master = decay * master - length * m / (root_scale * sqrt(v) + eps),  with decay = 1 from decay_end on
  __device__ __forceinline__ void move(const Step& step, index_t i, index_t decay_end) {
    float p_i[E], g_i[E], m_i[E], v_i[E];
    master.get(p_i);
    grad.get(g_i);
    m.get(m_i);
    v.get(v_i);
#pragma unroll
    for (int e = 0; e < E; e++) {
      const float g = g_i[e] * step.scale;
      m_i[e] = step.beta1 * m_i[e] + step.rest1 * g;
      v_i[e] = step.beta2 * v_i[e] + step.rest2 * (g * g);
      if (i + e < decay_end) p_i[e] *= step.decay;
      p_i[e] -= step.length * (m_i[e] / (sqrtf(v_i[e]) * step.root_scale + step.eps));
    }
    master.set(p_i);
    m.set(m_i);
    v.set(v_i);
  }

  __device__ __forceinline__ void store(const Buffers<T>& buffers, index_t i) const {
    m.store(buffers.m + i);
    v.store(buffers.v + i);
    master.store(buffers.master + i);
    if (buffers.compute == nullptr) return;
    float p_i[E];
    master.get(p_i);
    Packed<T, E> rounded;
    rounded.set(p_i);
    rounded.store(buffers.compute + i);
  }
};

// norm = sqrt(sum of partials) * inverse_scale. If it is not finite, that is all. Elements before decay_end decay.
template <class T, int E>
__global__ void __launch_bounds__(256)
adamw_update(float* norm, long long* updates, float* master, const float* grad, float* m, float* v, T* compute,
             const double* partials, int count, const float* lr_at, float lr_value, const float* inverse_scale_at,
             float inverse_scale_value, double beta1, double beta2, float eps, double weight_decay, double clip,
             index_t decay_end, index_t n) {
  const Buffers<T> buffers = {master, grad, m, v, compute};
  const index_t thread = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool has_pack = (thread + 1) * E <= n;
  Elements<T, E> elements;
  if (has_pack) elements.load(buffers, thread * E);

  __shared__ Step shared;
  __shared__ bool made;
  if (threadIdx.x < WARP) {  // in every block in the same order, so with the same bits
    double sum = 0.0;
    for (int i = threadIdx.x; i < count; i += WARP) sum += partials[i];
    const Update update = *reinterpret_cast<const Update*>(partials + count);
    const double lr = scalar(lr_at, lr_value);
    const float inverse_scale = scalar(inverse_scale_at, inverse_scale_value);
    const float length = static_cast<float>(sqrt(warp_sum(sum)) * inverse_scale);
    if (threadIdx.x == 0) {
      made = isfinite(length);
      shared = {static_cast<float>(inverse_scale * (length > clip ? clip / length : 1.0)),
                static_cast<float>(1.0 - lr * weight_decay),
                static_cast<float>(lr / update.correction),
                static_cast<float>(update.root_scale),
                static_cast<float>(beta1), static_cast<float>(1.0 - beta1),
                static_cast<float>(beta2), static_cast<float>(1.0 - beta2), eps};
      if (blockIdx.x == 0) norm[0] = length;
      if (blockIdx.x == 0 && made) updates[0] = static_cast<long long>(update.t);
    }
  }
  __syncthreads();
  if (!made) return;
  const Step step = shared;
  if (has_pack) {
    elements.move(step, thread * E, decay_end);
    elements.store(buffers, thread * E);
  }
  if (const index_t i = n / E * E + thread; i < n) {  // the last few, of which there is no whole pack
    Elements<T, 1> element;
    element.load(buffers, i);
    element.move(step, i, decay_end);
    element.store(buffers, i);
  }
}
