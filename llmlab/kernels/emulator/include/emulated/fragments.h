// The registers that one lane brings to a warp's matrix product.
#pragma once
#include "thread.h"

namespace emulated {

struct Fragments { float *d; const unsigned *a, *b; const float *c; };
using ToFloat = float (*)(uint16_t);

void mma_m16n8k16(Fragments fragments, ToFloat to_float, Site site);

}  // namespace emulated
