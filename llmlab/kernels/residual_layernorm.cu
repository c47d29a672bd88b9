// A residual connection and the LayerNorm that reads it:  r = x + (branch + branch_bias),  y = LayerNorm(r),  and gradient.
//
// Fused: two additions and the whole LayerNorm; r is written once and not read back. Backward adds the gradient dr that
//   arrives along the residual stream, and sums dbranch_bias, in the pass that computes dx = dbranch.
// Traffic: forward reads x and branch and writes r and y, each once. Backward reads dr, dy and r and writes dx, each
//   once, plus gridDim.x * 3 * C floats of partial sums.
// Launch, width of rows, determinism, source: as in layernorm.cu.
#include "layernorm.cuh"
#include "layernorm_wide.cuh"

// branch_bias may be null.
template <class T, int E, int K, int W>
__global__ void __launch_bounds__(W <= 4 ? 128 : 512)
residual_layernorm_forward(T* r, T* y, float* mean, float* rstd, const T* x, const T* branch, const T* weight,
                           const T* bias, const T* branch_bias, index_t N, int C, float eps) {
  forward_row<BRANCH, T, E, K, W>(r, y, mean, rstd, x, branch, weight, bias, branch_bias, N, C, eps);
}

template <class T, int E, int K, int W, int STAGES, bool DR, bool DX_SUM>
__global__ void __launch_bounds__(512, 1)
residual_layernorm_backward(T* dx, float* partials, const T* dr, const T* dy, const T* r, const T* weight,
                            const float* mean, const float* rstd, index_t N, int C) {
  backward_rows<DR, DX_SUM, STAGES, T, E, K, W>(dx, partials, dr, dy, r, weight, mean, rstd, N, C);
}

template <class T, int E>
__global__ void __launch_bounds__(1024, 1)
wide_residual_layernorm_forward(T* r, T* y, float* mean, float* rstd, const T* x, const T* branch, const T* weight,
                                const T* bias, const T* branch_bias, int C, float eps) {
  wide_forward_row<BRANCH, T, E>(r, y, mean, rstd, x, branch, weight, bias, branch_bias, C, eps);
}
