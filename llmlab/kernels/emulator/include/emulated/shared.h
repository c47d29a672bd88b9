// Shared memory. `__shared__ float s[128];` becomes a reference to storage that all threads of a block see.
#pragma once
#include "thread.h"

namespace emulated {

constexpr size_t MAX_SHARED = 227 * 1024;        // of a block, on sm_90
constexpr size_t MAX_STATIC_SHARED = 48 * 1024;  // what nvcc accepts without extern

void *place_shared(const char *name, size_t bytes, size_t element, Site site);
void *find_dynamic_shared(const char *name, size_t element);

template <class T> struct ElementOf { using type = T; };
template <class T, size_t n> struct ElementOf<T[n]> { using type = typename ElementOf<T>::type; };

// One of these stands for each declaration (and each instantiation of a template that holds one).
template <class T>
struct SharedVariable {
  T *place;
  uint64_t launch;
  EMULATED_INLINE T &here(const char *name, Site site) {
    if (launch != context.launch_serial) {
      launch = context.launch_serial;
      place = static_cast<T *>(place_shared(name, sizeof(T), sizeof(typename ElementOf<T>::type), site));
    }
    return *place;
  }
};

template <class T>
EMULATED_INLINE T *dynamic_shared(const char *name) {
  return static_cast<T *>(find_dynamic_shared(name, sizeof(T)));
}

}  // namespace emulated
