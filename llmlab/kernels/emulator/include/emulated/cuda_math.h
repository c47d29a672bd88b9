// CUDA's mathematical functions. Float functions are computed in float; the fast ones (__expf ...) as their exact twins.
#pragma once
#include "keywords.h"

// Declared here rather than by <math.h>, which takes longer to read than most kernels take to compile.
#define EMULATED_MATH_1(name)                                \
  extern "C" double name(double) noexcept;                   \
  extern "C" float name##f(float) noexcept;                  \
  EMULATED_INLINE float name(float x) { return name##f(x); }
#define EMULATED_MATH_2(name)                                                \
  extern "C" double name(double, double) noexcept;                           \
  extern "C" float name##f(float, float) noexcept;                           \
  EMULATED_INLINE float name(float x, float y) { return name##f(x, y); }

EMULATED_MATH_1(sqrt) EMULATED_MATH_1(cbrt)
EMULATED_MATH_1(exp) EMULATED_MATH_1(exp2) EMULATED_MATH_1(expm1)
EMULATED_MATH_1(log) EMULATED_MATH_1(log2) EMULATED_MATH_1(log10) EMULATED_MATH_1(log1p)
EMULATED_MATH_1(sin) EMULATED_MATH_1(cos) EMULATED_MATH_1(tan)
EMULATED_MATH_1(asin) EMULATED_MATH_1(acos) EMULATED_MATH_1(atan)
EMULATED_MATH_1(sinh) EMULATED_MATH_1(cosh) EMULATED_MATH_1(tanh)
EMULATED_MATH_1(asinh) EMULATED_MATH_1(acosh) EMULATED_MATH_1(atanh)
EMULATED_MATH_1(erf) EMULATED_MATH_1(erfc) EMULATED_MATH_1(tgamma) EMULATED_MATH_1(lgamma)
EMULATED_MATH_1(fabs) EMULATED_MATH_1(floor) EMULATED_MATH_1(ceil) EMULATED_MATH_1(trunc)
EMULATED_MATH_1(round) EMULATED_MATH_1(rint) EMULATED_MATH_1(nearbyint)
EMULATED_MATH_2(pow) EMULATED_MATH_2(fmod) EMULATED_MATH_2(remainder) EMULATED_MATH_2(atan2)
EMULATED_MATH_2(hypot) EMULATED_MATH_2(fmin) EMULATED_MATH_2(fmax) EMULATED_MATH_2(fdim)
EMULATED_MATH_2(copysign) EMULATED_MATH_2(nextafter)

extern "C" {
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
double frexp(double, int *) noexcept;
float frexpf(float, int *) noexcept;
double modf(double, double *) noexcept;
float modff(float, float *) noexcept;
long lrintf(float) noexcept;
long long llrintf(float) noexcept;
long lroundf(float) noexcept;
int abs(int) noexcept;
long labs(long) noexcept;
long long llabs(long long) noexcept;
}
EMULATED_INLINE float fma(float x, float y, float z) { return fmaf(x, y, z); }
EMULATED_INLINE float ldexp(float x, int n) { return ldexpf(x, n); }
EMULATED_INLINE float abs(float x) { return fabsf(x); }
EMULATED_INLINE double abs(double x) { return fabs(x); }
EMULATED_INLINE long abs(long x) { return labs(x); }
EMULATED_INLINE long long abs(long long x) { return llabs(x); }

#ifndef INFINITY
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define M_PI 3.14159265358979323846
#define M_SQRT1_2 0.70710678118654752440
#define M_SQRT2 1.41421356237309504880
#define M_2_SQRTPI 1.12837916709551257390
#define M_LN2 0.69314718055994530942
#define M_LOG2E 1.44269504088896340736
#endif
EMULATED_INLINE bool isnan(float x) { return x != x; }
EMULATED_INLINE bool isnan(double x) { return x != x; }
EMULATED_INLINE bool isinf(float x) { return __builtin_isinf(x); }
EMULATED_INLINE bool isinf(double x) { return __builtin_isinf(x); }
EMULATED_INLINE bool isfinite(float x) { return __builtin_isfinite(x); }
EMULATED_INLINE bool isfinite(double x) { return __builtin_isfinite(x); }
EMULATED_INLINE bool signbit(float x) { return __builtin_signbit(x); }
EMULATED_INLINE bool signbit(double x) { return __builtin_signbit(x); }

// min and max take any two arithmetic types, and return what C++ makes of the two in one expression (a value: of
// `true ? a : b` alone, decltype would make a reference to a parameter that is gone).
template <class A, class B>
EMULATED_INLINE auto max(A a, B b) -> decltype(true ? A() : B()) { return a > b ? a : b; }
template <class A, class B>
EMULATED_INLINE auto min(A a, B b) -> decltype(true ? A() : B()) { return b > a ? a : b; }
EMULATED_INLINE float max(float a, float b) { return fmaxf(a, b); }
EMULATED_INLINE float min(float a, float b) { return fminf(a, b); }
EMULATED_INLINE double max(double a, double b) { return fmax(a, b); }
EMULATED_INLINE double min(double a, double b) { return fmin(a, b); }

EMULATED_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
EMULATED_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
EMULATED_INLINE float rsqrt(float x) { return rsqrtf(x); }
EMULATED_INLINE float exp10f(float x) { return powf(10.0f, x); }
EMULATED_INLINE float normcdff(float x) { return 0.5f * erfcf(-x * float(M_SQRT1_2)); }
EMULATED_INLINE void sincosf(float x, float *s, float *c) { *s = sinf(x); *c = cosf(x); }
EMULATED_INLINE void sincos(double x, double *s, double *c) { *s = sin(x); *c = cos(x); }

EMULATED_INLINE float __expf(float x) { return expf(x); }
EMULATED_INLINE float __exp10f(float x) { return exp10f(x); }
EMULATED_INLINE float __logf(float x) { return logf(x); }
EMULATED_INLINE float __log2f(float x) { return log2f(x); }
EMULATED_INLINE float __log10f(float x) { return log10f(x); }
EMULATED_INLINE float __powf(float x, float y) { return powf(x, y); }
EMULATED_INLINE float __sinf(float x) { return sinf(x); }
EMULATED_INLINE float __cosf(float x) { return cosf(x); }
EMULATED_INLINE float __tanf(float x) { return tanf(x); }
EMULATED_INLINE float __tanhf(float x) { return tanhf(x); }
EMULATED_INLINE float __fdividef(float x, float y) { return x / y; }
EMULATED_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
EMULATED_INLINE float __fadd_rn(float x, float y) { return x + y; }
EMULATED_INLINE float __fsub_rn(float x, float y) { return x - y; }
EMULATED_INLINE float __fmul_rn(float x, float y) { return x * y; }
EMULATED_INLINE float __fdiv_rn(float x, float y) { return x / y; }
EMULATED_INLINE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
EMULATED_INLINE float __frcp_rn(float x) { return 1.0f / x; }
EMULATED_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
EMULATED_INLINE float __frsqrt_rn(float x) { return rsqrtf(x); }

// The same bits read as another type.
template <class To, class From>
EMULATED_INLINE To emulated_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits can only be read as a type of the same size");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}
EMULATED_INLINE int __float_as_int(float x) { return emulated_bits<int>(x); }
EMULATED_INLINE unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
EMULATED_INLINE float __int_as_float(int x) { return emulated_bits<float>(x); }
EMULATED_INLINE float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
EMULATED_INLINE long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }
EMULATED_INLINE double __longlong_as_double(long long x) { return emulated_bits<double>(x); }

// A conversion to an integer clamps and turns NaN into 0, as on a GPU.
EMULATED_INLINE int emulated_to_int(float x) {
  return x != x ? 0 : x >= 2147483648.0f ? INT_MAX : x < -2147483648.0f ? INT_MIN : int(x);
}
EMULATED_INLINE int __float2int_rn(float x) { return emulated_to_int(nearbyintf(x)); }
EMULATED_INLINE int __float2int_rz(float x) { return emulated_to_int(x); }
EMULATED_INLINE int __float2int_rd(float x) { return emulated_to_int(floorf(x)); }
EMULATED_INLINE int __float2int_ru(float x) { return emulated_to_int(ceilf(x)); }
EMULATED_INLINE float __int2float_rn(int x) { return float(x); }
EMULATED_INLINE float __uint2float_rn(unsigned x) { return float(x); }
EMULATED_INLINE float __ll2float_rn(long long x) { return float(x); }
EMULATED_INLINE float __ull2float_rn(unsigned long long x) { return float(x); }
EMULATED_INLINE float __double2float_rn(double x) { return float(x); }

EMULATED_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
EMULATED_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMULATED_INLINE int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
EMULATED_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)(x)) : 64; }
EMULATED_INLINE int __ffs(int x) { return __builtin_ffs(x); }
EMULATED_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
EMULATED_INLINE unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; bit++) reversed |= (x >> bit & 1) << (31 - bit);
  return reversed;
}
EMULATED_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  uint64_t bytes = uint64_t(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    unsigned choice = selector >> 4 * i;
    unsigned byte = unsigned(bytes >> 8 * (choice & 7)) & 0xff;
    if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << 8 * i;
  }
  return result;
}
EMULATED_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
EMULATED_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
EMULATED_INLINE int __mulhi(int x, int y) { return int((long long)(x) * y >> 32); }
EMULATED_INLINE unsigned __umulhi(unsigned x, unsigned y) { return unsigned(uint64_t(x) * y >> 32); }
EMULATED_INLINE unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)(x) * y >> 64);
}
EMULATED_INLINE int __mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
EMULATED_INLINE int __dp4a(int x, int y, int sum) {
  for (int i = 0; i < 4; i++) sum += int((signed char)(x >> 8 * i)) * int((signed char)(y >> 8 * i));
  return sum;
}
