// The optimizer's step over flat buffers: the norm of the gradient, then AdamW with unscaling and clipping.
//
// Fused: unscale, clip, both moments, bias correction, decoupled decay, the master copy and its rounding to the compute
//   dtype, in one pass; whether the step happens at all is read on the device, so the host never waits.
// Traffic: the norm reads the gradient once (4 bytes a parameter). The update reads gradient, m, v, master and writes m,
//   v, master and the compute copy, each once (28 bytes, plus the copy's 2 or 4).
// Launch: one dimension, E = 4 elements to a thread (16 bytes a buffer, four buffers under way together).
// Deterministic: the norm is summed in two stages in a fixed order; the rest is elementwise.
// Source: Loshchilov and Hutter 2019; one pass over flat buffers as in Apex's multi_tensor_adam and llm.c.
#include "row.cuh"

// The squares are summed in float64: no finite float32 overflows there, no small one vanishes, and inf or NaN in any
// element comes out as inf or NaN. Reading memory takes longer than this, even where float64 is slow.
__device__ __forceinline__ double block_sum(double v) {
  __shared__ double of_warp[WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
#pragma unroll
  for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(ALL_LANES, v, d);  // in the end each lane holds its warp's sum
  if (lane == 0) of_warp[warp] = v;
  __syncthreads();
  v = lane < warps ? of_warp[lane] : 0.0;
#pragma unroll
  for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(ALL_LANES, v, d);  // and now the block's
  return v;
}

// partials[blockIdx.x] = the sum of the squares of this block's packs.
template <int E>
__global__ void __launch_bounds__(512) sum_squares(double* partials, const float* __restrict__ grad, index_t n) {
  constexpr int AHEAD = 8 / E;  // loads under way together
  const index_t step = static_cast<index_t>(gridDim.x) * blockDim.x * E;
  double sum = 0.0;
  for (index_t i = (static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x) * E; i < n; i += AHEAD * step) {
    float v[AHEAD][E] = {};
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (i + a * step + E <= n) {
        Packed<float, E>::load(grad + i + a * step).get(v[a]);
      } else {
        for (int e = 0; e < E; e++)
          if (i + a * step + e < n) v[a][e] = grad[i + a * step + e];
      }
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++)
#pragma unroll
      for (int e = 0; e < E; e++) sum += static_cast<double>(v[a][e]) * v[a][e];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// A scalar that the host knows, or one that lies on the device.
__device__ __forceinline__ float scalar(const float* at, float value) { return at != nullptr ? *at : value; }

// norm = sqrt(sum of partials) * inverse_scale; one block.
extern "C" __global__ void __launch_bounds__(512)
finish_norm(float* norm, const double* partials, int count, const float* inverse_scale_at, float inverse_scale) {
  double sum = 0.0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) norm[0] = static_cast<float>(sqrt(sum) * scalar(inverse_scale_at, inverse_scale));
}

// What all elements share.
struct Step { float scale, decay, length, root_scale, apply; };

// One thread works out the shared scalars and counts the update, so that no block of the update reads `step` while another
// raises it. shared (5,).
extern "C" __global__ void prepare_update(float* shared, long long* step, const float* norm, const float* lr_at, float lr_value,
                                          const float* inverse_scale_at, float inverse_scale, double beta1, double beta2,
                                          double weight_decay, double clip) {
  const double norm_value = norm[0], lr = scalar(lr_at, lr_value);
  const bool finite = isfinite(norm[0]);
  const long long t = step[0] + 1;
  if (finite) step[0] = t;
  shared[0] = static_cast<float>(scalar(inverse_scale_at, inverse_scale) * (norm_value > clip ? clip / norm_value : 1.0));
  shared[1] = static_cast<float>(1.0 - lr * weight_decay);
  shared[2] = static_cast<float>(lr / (1.0 - pow(beta1, static_cast<double>(t))));
  shared[3] = static_cast<float>(1.0 / sqrt(1.0 - pow(beta2, static_cast<double>(t))));
  shared[4] = finite ? 1.0f : 0.0f;
}

// g = grad * scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
// master = decay * master - length * m / (root_scale * sqrt(v) + eps)
__device__ __forceinline__ void adamw(float& master, float& m, float& v, float g, const Step& step, bool decayed, float beta1,
                                      float rest1, float beta2, float rest2, float eps) {
  g *= step.scale;
  m = beta1 * m + rest1 * g;
  v = beta2 * v + rest2 * (g * g);
  if (decayed) master *= step.decay;
  master -= step.length * (m / (sqrtf(v) * step.root_scale + eps));
}

// rest = 1 - beta. compute is null if there is no copy. Elements before decay_end decay.
template <class T, int E>
__global__ void __launch_bounds__(256)
adamw_update(float* master, const float* __restrict__ grad, float* m, float* v, T* compute, const float* shared, float beta1,
             float rest1, float beta2, float rest2, float eps, index_t decay_end, index_t n) {
  const Step step = {shared[0], shared[1], shared[2], shared[3], shared[4]};
  if (step.apply == 0.0f) return;
  const index_t stride = static_cast<index_t>(gridDim.x) * blockDim.x * E;
  for (index_t i = (static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x) * E; i < n; i += stride) {
    if (i + E > n) {  // the last few, of which there is no whole pack
      for (index_t j = i; j < n; j++) {
        adamw(master[j], m[j], v[j], grad[j], step, j < decay_end, beta1, rest1, beta2, rest2, eps);
        if (compute != nullptr) compute[j] = from_float<T>(master[j]);
      }
      return;
    }
    float p_i[E], g_i[E], m_i[E], v_i[E];
    Packed<float, E>::load(grad + i).get(g_i);
    Packed<float, E>::load(m + i).get(m_i);
    Packed<float, E>::load(v + i).get(v_i);
    Packed<float, E>::load(master + i).get(p_i);
#pragma unroll
    for (int e = 0; e < E; e++)
      adamw(p_i[e], m_i[e], v_i[e], g_i[e], step, i + e < decay_end, beta1, rest1, beta2, rest2, eps);
    Packed<float, E> pack;
    pack.set(m_i);
    pack.store(m + i);
    pack.set(v_i);
    pack.store(v + i);
    pack.set(p_i);
    pack.store(master + i);
    if (compute != nullptr) {
      Packed<T, E> rounded;
      rounded.set(p_i);
      rounded.store(compute + i);
    }
  }
}
