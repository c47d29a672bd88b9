// mma.sync.aligned.m16n8k16.row.col.f32: a warp multiplies a 16x16 by a 16x8 matrix of 16-bit floats, summing in float.
// Which lane holds which elements is the PTX manual's figure "MMA .m16n8k16 fragment layout".
#pragma once
#include "bfloat16.h"
#include "fragments.h"
#include "half.h"

namespace emulated {

inline EMULATED_UNWATCHED void mma_m16n8k16_bf16(float *d, const unsigned *a, const unsigned *b, const float *c, EMULATED_HERE) {
  mma_m16n8k16({d, a, b, c}, [](uint16_t bits) EMULATED_UNWATCHED { return bfloat16_to_float(bits); }, {file, line});
}
inline EMULATED_UNWATCHED void mma_m16n8k16_f16(float *d, const unsigned *a, const unsigned *b, const float *c, EMULATED_HERE) {
  mma_m16n8k16({d, a, b, c}, [](uint16_t bits) EMULATED_UNWATCHED { return half_to_float(bits); }, {file, line});
}

}  // namespace emulated
