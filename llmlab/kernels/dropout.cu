// Dropout with a counter-based generator:  y = x * keep / (1 - p),  keep a function of (seed, step, layer, place).
//
// Fused: the mask is drawn where it is used, in forward and again in backward; it is never stored. Backward is the same
//   kernel on dy.
// Traffic: x once, y once. y may be x.
// Launch: one dimension; a thread takes the four elements that share a block of the generator.
// Deterministic: no state; the same counter gives the same words as the text in llmlab/ops/dropout.py.
// Source: Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
#include "row.cuh"

struct Words { unsigned at[4]; };

// Ten rounds: both products' halves change places and meet the key, which grows by a constant each round.
__device__ __forceinline__ Words philox(Words counter, unsigned key_0, unsigned key_1) {
  unsigned c0 = counter.at[0], c1 = counter.at[1], c2 = counter.at[2], c3 = counter.at[3];
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const unsigned long long a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
    c0 = static_cast<unsigned>(b >> 32) ^ c1 ^ key_0;
    c1 = static_cast<unsigned>(b);
    c2 = static_cast<unsigned>(a >> 32) ^ c3 ^ key_1;
    c3 = static_cast<unsigned>(a);
    key_0 += 0x9E3779B9u;
    key_1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The first element of x is number `offset` of the whole tensor. step_at is null unless the step lies on the device.
// PACKED: four elements are one access, which needs an offset that is a multiple of 4.
template <class T, bool PACKED>
__global__ void __launch_bounds__(256)
dropout(T* y, const T* x, unsigned long long threshold, float scale, unsigned long long seed, const long long* step_at,
        long long step_value, unsigned layer, long long offset, index_t n) {
  const unsigned step = static_cast<unsigned>(step_at != nullptr ? *step_at : step_value);
  const long long first = offset / 4, blocks = (offset + n + 3) / 4 - first;
  const index_t stride = static_cast<index_t>(gridDim.x) * blockDim.x;
  for (index_t i = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < blocks; i += stride) {
    const unsigned long long block = first + i;
    const Words words = philox({{static_cast<unsigned>(block), static_cast<unsigned>(block >> 32), step, layer}},
                               static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
    const index_t at = static_cast<index_t>(block * 4 - offset);
    if (PACKED && at + 4 <= n) {
      float v[4];
      Packed<T, 4> pack = Packed<T, 4>::load(x + at);
      pack.get(v);
#pragma unroll
      for (int k = 0; k < 4; k++) v[k] = words.at[k] >= threshold ? v[k] * scale : 0.0f;
      pack.set(v);
      pack.store(y + at);
    } else {
#pragma unroll
      for (int k = 0; k < 4; k++)
        if (at + k >= 0 && at + k < n) y[at + k] = from_float<T>(words.at[k] >= threshold ? to_float(x[at + k]) * scale : 0.0f);
    }
  }
}
