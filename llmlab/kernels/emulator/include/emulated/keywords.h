// The words that CUDA adds to C++, as a C++ compiler on a CPU should read them.
#pragma once
#include <float.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LLMLAB_EMULATED 1

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

// The emulator's own code is not watched by the checker; the kernel's is.
#define EMULATED_UNWATCHED __attribute__((no_sanitize("thread", "undefined")))
#define EMULATED_INLINE inline __attribute__((always_inline)) EMULATED_UNWATCHED

// Default arguments that tell a built-in where in the kernel it was called.
#define EMULATED_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

extern "C" int printf(const char *format, ...);
