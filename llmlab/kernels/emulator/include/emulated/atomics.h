// Atomic operations. One thread runs at a time, so read, change and write are indivisible here.
#pragma once
#include "memory.h"
#include "warp.h"

namespace emulated {

void atomic_done(const void *address);

template <class T> struct Same { using type = T; };
template <class T> using Exactly = typename Same<T>::type;   // takes no part in deducing T

// Watched code calls it, so that the address to return to is in the kernel's own text.
#if defined(EMULATED_WATCHED)
#define EMULATED_ATOMIC_FUNCTION __attribute__((noinline)) EMULATED_UNWATCHED
#else
#define EMULATED_ATOMIC_FUNCTION inline __attribute__((always_inline))
#endif

template <class T, class Change>
EMULATED_ATOMIC_FUNCTION T atomic(T *address, Change change) {
  touch(address, sizeof(T), sizeof(T), Access::atomic, __builtin_return_address(0));
  T old = *address;
  *address = change(old);
#if defined(EMULATED_WATCHED)
  atomic_done(address);
#endif
  return old;
}

}  // namespace emulated

#define EMULATED_ATOMIC(name, expression)                                                              \
  template <class T> EMULATED_INLINE T name(T *address, emulated::Exactly<T> value) {                  \
    return emulated::atomic(address, [=](T old) EMULATED_UNWATCHED -> T { return expression; });       \
  }                                                                                                    \
  template <class T> EMULATED_INLINE T name##_block(T *address, emulated::Exactly<T> value) { return name(address, value); } \
  template <class T> EMULATED_INLINE T name##_system(T *address, emulated::Exactly<T> value) { return name(address, value); }

EMULATED_ATOMIC(atomicAdd, T(old + value))
EMULATED_ATOMIC(atomicSub, T(old - value))
EMULATED_ATOMIC(atomicMin, value < old ? value : old)
EMULATED_ATOMIC(atomicMax, old < value ? value : old)
EMULATED_ATOMIC(atomicExch, value)
EMULATED_ATOMIC(atomicAnd, old & value)
EMULATED_ATOMIC(atomicOr, old | value)
EMULATED_ATOMIC(atomicXor, old ^ value)
EMULATED_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
EMULATED_ATOMIC(atomicDec, old == 0 || old > value ? value : T(old - 1))

template <class T>
EMULATED_INLINE T atomicCAS(T *address, emulated::Exactly<T> compare, emulated::Exactly<T> value) {
  return emulated::atomic(address, [=](T old) EMULATED_UNWATCHED -> T { return old == compare ? value : old; });
}
