// __half: IEEE binary16, 1 sign bit, 5 bits of exponent, 10 of fraction.
#pragma once
#include "half_precision.h"

namespace emulated {

EMULATED_INLINE uint16_t float_to_half(float x) {
  unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;                        // NaN
  if (magnitude >= 0x47800000) return uint16_t(sign | 0x7c00);      // 2^16 and more: infinity
  if (magnitude < 0x38800000) {                                     // below 2^-14: subnormal, a multiple of 2^-24
    float rounded = __uint_as_float(magnitude) + 0.5f;              // 0.5 has a last bit of 2^-24: the addition rounds
    return uint16_t(sign | (__float_as_uint(rounded) - 0x3f000000));
  }
  unsigned to_even = 0xfff + (magnitude >> 13 & 1);
  return uint16_t(sign | ((magnitude + to_even - 0x38000000) >> 13));
}

EMULATED_INLINE float half_to_float(uint16_t bits) {
  unsigned sign = unsigned(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x400) {
    float value = float(magnitude) * 5.9604644775390625e-8f;        // 2^-24
    return sign ? -value : value;
  }
  return __uint_as_float(sign | ((magnitude << 13) + 0x38000000));
}

}  // namespace emulated

EMULATED_16_BIT_FLOAT(__half, __half2, emulated::float_to_half, emulated::half_to_float)
typedef __half half;
typedef __half2 half2;

EMULATED_INLINE __half __float2half(float x) { return __half(x); }
EMULATED_INLINE __half __float2half_rn(float x) { return __half(x); }
EMULATED_INLINE __half __double2half(double x) { return __half(x); }
EMULATED_INLINE __half __int2half_rn(int x) { return __half(x); }
EMULATED_INLINE float __half2float(__half x) { return float(x); }
EMULATED_INLINE __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
EMULATED_INLINE __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
EMULATED_INLINE __half2 __float22half2_rn(float2 x) { return {__half(x.x), __half(x.y)}; }
EMULATED_INLINE float2 __half22float2(__half2 x) { return {float(x.x), float(x.y)}; }
EMULATED_INLINE __half2 __half2half2(__half x) { return {x, x}; }
EMULATED_INLINE __half2 __halves2half2(__half x, __half y) { return {x, y}; }
EMULATED_INLINE __half2 make_half2(__half x, __half y) { return {x, y}; }
EMULATED_INLINE __half __low2half(__half2 x) { return x.x; }
EMULATED_INLINE __half __high2half(__half2 x) { return x.y; }
EMULATED_INLINE unsigned short __half_as_ushort(__half x) { return x.bits; }
EMULATED_INLINE short __half_as_short(__half x) { return short(x.bits); }
EMULATED_INLINE __half __ushort_as_half(unsigned short x) { return __half::from_bits(x); }
EMULATED_INLINE __half __short_as_half(short x) { return __half::from_bits((unsigned short)(x)); }
