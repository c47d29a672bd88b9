// Loads and stores with a cache hint: on a CPU, plain ones.
#pragma once
#include "keywords.h"

namespace emulated {

enum class Access : int { read, write, atomic };

// Tells the checker of an access that the compiler does not show it (one made by a built-in).
#if defined(EMULATED_WATCHED)
void touch(const void *address, size_t bytes, size_t alignment, Access access, void *pc);
#else
EMULATED_INLINE void touch(const void *, size_t, size_t, Access, void *) {}
#endif

}  // namespace emulated

#define EMULATED_LOAD(name) template <class T> __forceinline__ T name(const T *address) { return *address; }
#define EMULATED_STORE(name) template <class T> __forceinline__ void name(T *address, T value) { *address = value; }
EMULATED_LOAD(__ldg)
EMULATED_LOAD(__ldca)
EMULATED_LOAD(__ldcg)
EMULATED_LOAD(__ldcs)
EMULATED_LOAD(__ldlu)
EMULATED_LOAD(__ldcv)
EMULATED_STORE(__stwb)
EMULATED_STORE(__stcg)
EMULATED_STORE(__stcs)
EMULATED_STORE(__stwt)

inline size_t __cvta_generic_to_shared(const void *address) { return reinterpret_cast<size_t>(address); }
