// What bfloat16 and half have in common: bits in memory, arithmetic in float, one rounding to nearest even.
// float has at least 2p + 2 bits for both (p = 8 and 11), so rounding +, -, *, / and sqrt twice equals rounding once;
// a fused multiply-add needs more, hence double with round-to-odd.
#pragma once
#include "cuda_math.h"
#include "vectors.h"

namespace emulated {

// a * b + c in double, rounded to odd, so that a second rounding to 16 bits is as good as one.
EMULATED_INLINE double fma_to_odd(double a, double b, double c) {
  double product = a * b;                       // exact: two 11-bit factors
  double sum = product + c;
  double back = sum - product;
  double error = (product - (sum - back)) + (c - back);   // Knuth's TwoSum
  long long bits = __double_as_longlong(sum);
  if (error == 0.0 || error != error || bits & 1) return sum;
  return __longlong_as_double(bits + ((error > 0) == (sum > 0) ? 1 : -1));
}

// double to float, rounded to odd: the step between a double and 16 bits.
EMULATED_INLINE float to_odd_float(double x) {
  float f = float(x);
  unsigned bits = __float_as_uint(f);
  if (double(f) == x || x != x || bits & 1 || isinf(f)) return f;
  return __uint_as_float((x > double(f)) == (f > 0) ? bits + 1 : bits - 1);
}

}  // namespace emulated

#define EMULATED_ARITHMETIC(T, T2)                                                                   \
  EMULATED_INLINE T operator+(T a, T b) { return T(float(a) + float(b)); }                           \
  EMULATED_INLINE T operator-(T a, T b) { return T(float(a) - float(b)); }                           \
  EMULATED_INLINE T operator*(T a, T b) { return T(float(a) * float(b)); }                           \
  EMULATED_INLINE T operator/(T a, T b) { return T(float(a) / float(b)); }                           \
  EMULATED_INLINE T operator-(T a) { return T::from_bits(a.bits ^ 0x8000); }                         \
  EMULATED_INLINE T operator+(T a) { return a; }                                                     \
  EMULATED_INLINE T &operator+=(T &a, T b) { return a = a + b; }                                     \
  EMULATED_INLINE T &operator-=(T &a, T b) { return a = a - b; }                                     \
  EMULATED_INLINE T &operator*=(T &a, T b) { return a = a * b; }                                     \
  EMULATED_INLINE T &operator/=(T &a, T b) { return a = a / b; }                                     \
  EMULATED_INLINE bool operator==(T a, T b) { return float(a) == float(b); }                         \
  EMULATED_INLINE bool operator!=(T a, T b) { return float(a) != float(b); }                         \
  EMULATED_INLINE bool operator<(T a, T b) { return float(a) < float(b); }                           \
  EMULATED_INLINE bool operator>(T a, T b) { return float(a) > float(b); }                           \
  EMULATED_INLINE bool operator<=(T a, T b) { return float(a) <= float(b); }                         \
  EMULATED_INLINE bool operator>=(T a, T b) { return float(a) >= float(b); }                         \
  EMULATED_INLINE T __hadd(T a, T b) { return a + b; }                                               \
  EMULATED_INLINE T __hsub(T a, T b) { return a - b; }                                               \
  EMULATED_INLINE T __hmul(T a, T b) { return a * b; }                                               \
  EMULATED_INLINE T __hdiv(T a, T b) { return a / b; }                                               \
  EMULATED_INLINE T __hneg(T a) { return -a; }                                                       \
  EMULATED_INLINE T __habs(T a) { return T::from_bits(a.bits & 0x7fff); }                            \
  EMULATED_INLINE T __hfma(T a, T b, T c) {                                                          \
    return T(emulated::fma_to_odd(double(float(a)), double(float(b)), double(float(c))));            \
  }                                                                                                  \
  EMULATED_INLINE T __hmax(T a, T b) { return T(fmaxf(float(a), float(b))); }                        \
  EMULATED_INLINE T __hmin(T a, T b) { return T(fminf(float(a), float(b))); }                        \
  EMULATED_INLINE bool __heq(T a, T b) { return a == b; }                                            \
  EMULATED_INLINE bool __hne(T a, T b) { return a != b; }                                            \
  EMULATED_INLINE bool __hlt(T a, T b) { return a < b; }                                             \
  EMULATED_INLINE bool __hle(T a, T b) { return a <= b; }                                            \
  EMULATED_INLINE bool __hgt(T a, T b) { return a > b; }                                             \
  EMULATED_INLINE bool __hge(T a, T b) { return a >= b; }                                            \
  EMULATED_INLINE bool __hisnan(T a) { return a != a; }                                              \
  EMULATED_INLINE T hexp(T a) { return T(expf(float(a))); }                                          \
  EMULATED_INLINE T hexp2(T a) { return T(exp2f(float(a))); }                                        \
  EMULATED_INLINE T hlog(T a) { return T(logf(float(a))); }                                          \
  EMULATED_INLINE T hsqrt(T a) { return T(sqrtf(float(a))); }                                        \
  EMULATED_INLINE T hrsqrt(T a) { return T(rsqrtf(float(a))); }                                      \
  EMULATED_INLINE T hrcp(T a) { return T(1.0f / float(a)); }                                         \
  EMULATED_INLINE T htanh(T a) { return T(tanhf(float(a))); }                                        \
  EMULATED_INLINE T2 operator+(T2 a, T2 b) { return T2(a.x + b.x, a.y + b.y); }                      \
  EMULATED_INLINE T2 operator-(T2 a, T2 b) { return T2(a.x - b.x, a.y - b.y); }                      \
  EMULATED_INLINE T2 operator*(T2 a, T2 b) { return T2(a.x * b.x, a.y * b.y); }                      \
  EMULATED_INLINE T2 operator/(T2 a, T2 b) { return T2(a.x / b.x, a.y / b.y); }                      \
  EMULATED_INLINE T2 operator-(T2 a) { return T2(-a.x, -a.y); }                                      \
  EMULATED_INLINE T2 &operator+=(T2 &a, T2 b) { return a = a + b; }                                  \
  EMULATED_INLINE T2 &operator*=(T2 &a, T2 b) { return a = a * b; }                                  \
  EMULATED_INLINE T2 __hadd2(T2 a, T2 b) { return a + b; }                                           \
  EMULATED_INLINE T2 __hsub2(T2 a, T2 b) { return a - b; }                                           \
  EMULATED_INLINE T2 __hmul2(T2 a, T2 b) { return a * b; }                                           \
  EMULATED_INLINE T2 __h2div(T2 a, T2 b) { return a / b; }                                           \
  EMULATED_INLINE T2 __hneg2(T2 a) { return -a; }                                                    \
  EMULATED_INLINE T2 __hfma2(T2 a, T2 b, T2 c) { return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
  EMULATED_INLINE T2 __hmax2(T2 a, T2 b) { return T2(__hmax(a.x, b.x), __hmax(a.y, b.y)); }          \
  EMULATED_INLINE T2 __hmin2(T2 a, T2 b) { return T2(__hmin(a.x, b.x), __hmin(a.y, b.y)); }          \
  EMULATED_INLINE float __low2float(T2 a) { return float(a.x); }                                     \
  EMULATED_INLINE float __high2float(T2 a) { return float(a.y); }

// A 16-bit float T and the pair T2. FROM_FLOAT and TO_FLOAT convert bits.
#define EMULATED_16_BIT_FLOAT(T, T2, FROM_FLOAT, TO_FLOAT)                                           \
  struct alignas(2) T {                                                                              \
    uint16_t bits;                                                                                   \
    T() = default;                                                                                   \
    EMULATED_INLINE T(float x) : bits(FROM_FLOAT(x)) {}                                              \
    EMULATED_INLINE T(double x) : bits(FROM_FLOAT(emulated::to_odd_float(x))) {}                     \
    EMULATED_INLINE T(int x) : T(double(x)) {}                                                       \
    EMULATED_INLINE T(unsigned x) : T(double(x)) {}                                                  \
    EMULATED_INLINE T(long long x) : T(double(x)) {}                                                 \
    EMULATED_INLINE T(unsigned long long x) : T(double(x)) {}                                        \
    EMULATED_INLINE operator float() const { return TO_FLOAT(bits); }                                \
    static EMULATED_INLINE T from_bits(unsigned b) { T t; t.bits = uint16_t(b); return t; }          \
  };                                                                                                 \
  struct alignas(4) T2 {                                                                             \
    T x, y;                                                                                          \
    T2() = default;                                                                                  \
    EMULATED_INLINE T2(T x, T y) : x(x), y(y) {}                                                     \
  };                                                                                                 \
  EMULATED_ARITHMETIC(T, T2)
