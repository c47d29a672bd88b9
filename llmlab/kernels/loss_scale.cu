// The loss scale moves after a step, by the rule of llmlab/optim/loss_scaling.py.
//
// Fused: the test of the norm, growth, backoff, both limits, the inverse and both counts. As array operations they are
//   twenty launches of one element each, which for a small network take longer than the optimizer's step.
// Launch: one thread. The host reads none of it.
#include "common.cuh"

extern "C" __global__ void loss_scale_update(float* scale, float* inverse, int* good, int* stuck, const float* norm,
                                             float growth, float backoff, long long interval, float minimum, float maximum) {
  const bool finite = isfinite(norm[0]);
  const int count = finite ? good[0] + 1 : 0;
  const bool grows = count >= interval;
  if (!finite && scale[0] <= minimum) stuck[0] += 1;
  const float moved = scale[0] * (finite ? (grows ? growth : 1.0f) : backoff);
  const float limited = fminf(fmaxf(moved, minimum), maximum);
  scale[0] = limited;
  inverse[0] = 1.0f / limited;
  good[0] = grows ? 0 : count;
}
