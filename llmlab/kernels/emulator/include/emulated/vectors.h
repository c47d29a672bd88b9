// float4, int2, uchar3 ... and dim3, with CUDA's sizes and alignments.
#pragma once
#include "keywords.h"

#define EMULATED_VECTORS(scalar, name, align2, align4)                                                \
  struct name##1 { scalar x; };                                                                       \
  struct alignas(align2) name##2 { scalar x, y; };                                                    \
  struct name##3 { scalar x, y, z; };                                                                 \
  struct alignas(align4) name##4 { scalar x, y, z, w; };                                              \
  inline name##1 make_##name##1(scalar x) { return {x}; }                                             \
  inline name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }                                \
  inline name##3 make_##name##3(scalar x, scalar y, scalar z) { return {x, y, z}; }                   \
  inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef long long longlong;
typedef unsigned long long ulonglong;

EMULATED_VECTORS(signed char, char, 2, 4)
EMULATED_VECTORS(unsigned char, uchar, 2, 4)
EMULATED_VECTORS(short, short, 4, 8)
EMULATED_VECTORS(unsigned short, ushort, 4, 8)
EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(unsigned int, uint, 8, 16)
EMULATED_VECTORS(long, long, 16, 16)
EMULATED_VECTORS(unsigned long, ulong, 16, 16)
EMULATED_VECTORS(long long, longlong, 16, 16)
EMULATED_VECTORS(unsigned long long, ulonglong, 16, 16)
EMULATED_VECTORS(float, float, 8, 16)
EMULATED_VECTORS(double, double, 16, 16)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
