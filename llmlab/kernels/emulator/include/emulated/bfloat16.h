// __nv_bfloat16: the upper half of a float.
#pragma once
#include "half_precision.h"

namespace emulated {

EMULATED_INLINE uint16_t float_to_bfloat16(float x) {
  if (x != x) return 0x7fff;
  unsigned bits = __float_as_uint(x);
  unsigned to_even = 0x7fff + (bits >> 16 & 1);
  return uint16_t((bits + to_even) >> 16);
}
EMULATED_INLINE float bfloat16_to_float(uint16_t bits) { return __uint_as_float(unsigned(bits) << 16); }

}  // namespace emulated

EMULATED_16_BIT_FLOAT(__nv_bfloat16, __nv_bfloat162, emulated::float_to_bfloat16, emulated::bfloat16_to_float)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

EMULATED_INLINE __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
EMULATED_INLINE __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
EMULATED_INLINE __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
EMULATED_INLINE __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(x); }
EMULATED_INLINE float __bfloat162float(__nv_bfloat16 x) { return float(x); }
EMULATED_INLINE __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
EMULATED_INLINE __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
EMULATED_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 x) { return {__nv_bfloat16(x.x), __nv_bfloat16(x.y)}; }
EMULATED_INLINE float2 __bfloat1622float2(__nv_bfloat162 x) { return {float(x.x), float(x.y)}; }
EMULATED_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
EMULATED_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
EMULATED_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
EMULATED_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
EMULATED_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
EMULATED_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
EMULATED_INLINE short __bfloat16_as_short(__nv_bfloat16 x) { return short(x.bits); }
EMULATED_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16::from_bits(x); }
EMULATED_INLINE __nv_bfloat16 __short_as_bfloat16(short x) { return __nv_bfloat16::from_bits((unsigned short)(x)); }
