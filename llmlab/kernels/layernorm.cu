// LayerNorm of the rows of x (N, C):  y = (x - mean) * rstd * weight + bias,  and its gradient.
//
// Fused: statistics, normalisation, scale and shift in one launch; dx and the row sums of dweight and dbias in another.
// Traffic: forward reads x once and writes y once (plus 8 bytes a row for mean and rstd). Backward reads dy and x once
//   and writes dx once, plus gridDim.x * 2 * C floats of partial sums, which column_sum.cu adds up.
// Launch: one dimension; blocks of teams of W warps. Forward: a row to each team. Backward: as many blocks as run at once,
//   whose teams walk over the rows, so that each block writes its partial sums once.
// Rows wider than a block's registers go to the wide_ kernels, which read a row once a pass, mostly from cache.
// Deterministic: every sum is added in an order that only the launch shape decides; no atomics.
// Source: the gradient as derived in llmlab/ops/layernorm.py; sums in two stages as in Apex's FastLayerNorm and llm.c.
#include "layernorm.cuh"
#include "layernorm_wide.cuh"

template <class T, int E, int K, int W>
__global__ void __launch_bounds__(W <= 4 ? 128 : 512)
layernorm_forward(T* y, float* mean, float* rstd, const T* x, const T* weight, const T* bias, index_t N, int C, float eps) {
  forward_row<PLAIN, T, E, K, W>(nullptr, y, mean, rstd, x, nullptr, weight, bias, nullptr, N, C, eps);
}

template <class T, int E, int K, int W>
__global__ void __launch_bounds__(W <= 4 ? 128 : 512)
layernorm_recompute(T* y, const T* x, const T* weight, const T* bias, const float* mean, const float* rstd, index_t N, int C) {
  forward_row<RECOMPUTE, T, E, K, W>(nullptr, y, const_cast<float*>(mean), const_cast<float*>(rstd), x, nullptr, weight,
                                      bias, nullptr, N, C, 0.0f);
}

template <class T, int E, int K, int W, int STAGES>
__global__ void __launch_bounds__(512, 1)
layernorm_backward(T* dx, float* partials, const T* dy, const T* x, const T* weight, const float* mean, const float* rstd,
                   index_t N, int C) {
  backward_rows<false, false, STAGES, T, E, K, W>(dx, partials, nullptr, dy, x, weight, mean, rstd, N, C);
}

template <class T, int E>
__global__ void __launch_bounds__(1024, 1)
wide_layernorm_forward(T* y, float* mean, float* rstd, const T* x, const T* weight, const T* bias, int C, float eps) {
  wide_forward_row<PLAIN, T, E>(nullptr, y, mean, rstd, x, nullptr, weight, bias, nullptr, C, eps);
}

template <class T, int E>
__global__ void __launch_bounds__(1024, 1)
wide_layernorm_recompute(T* y, const T* x, const T* weight, const T* bias, const float* mean, const float* rstd, int C) {
  wide_forward_row<RECOMPUTE, T, E>(nullptr, y, const_cast<float*>(mean), const_cast<float*>(rstd), x, nullptr, weight,
                                    bias, nullptr, C, 0.0f);
}

template <class T, int E>
__global__ void __launch_bounds__(1024, 1)
wide_layernorm_shift(float* shifts, const T* x, const float* mean, int C) {
  wide_shift<T, E>(shifts, x, mean, C);
}

template <class T, int E>
__global__ void __launch_bounds__(512, 1)
wide_layernorm_column_sums(float* partials, const float* shifts, const T* dy, const T* x, const float* mean,
                           const float* rstd, index_t N, int C) {
  wide_column_sums<T, E>(partials, shifts, dy, x, mean, rstd, N, C);
}

// dr is null in a LayerNorm without residual connection.
template <class T, int E, bool DR>
__global__ void __launch_bounds__(1024, 1)
wide_layernorm_backward(T* dx, const float* shifts, const T* dr, const T* dy, const T* x, const T* weight,
                        const float* mean, const float* rstd, int C) {
  wide_backward_row<DR, T, E>(dx, shifts, dr, dy, x, weight, mean, rstd, C);
}
