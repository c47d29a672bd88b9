// How Python reaches a kernel: what its parameters are, and one function that calls it for one thread.
#pragma once
#include "bfloat16.h"
#include "half.h"

namespace emulated {

enum class Kind : int { integer, natural, floating, half, bfloat16, boolean, bytes, other };

// Mirrored by `Parameter` in signature.py.
struct Parameter {
  int pointer, constant;   // is it a pointer; to const
  int kind, lanes, bytes;  // of the value, or of what is pointed to; lanes: 4 for float4
};

template <class T> struct KindOf { static constexpr Kind kind = Kind::other; static constexpr int lanes = 1; };
#define EMULATED_KIND_OF(T, k, n) \
  template <> struct KindOf<T> { static constexpr Kind kind = Kind::k; static constexpr int lanes = n; };
#define EMULATED_KIND(T, k) EMULATED_KIND_OF(T, k, 1)
#define EMULATED_VECTOR_KIND(name, k) \
  EMULATED_KIND_OF(name##1, k, 1) EMULATED_KIND_OF(name##2, k, 2) EMULATED_KIND_OF(name##3, k, 3) EMULATED_KIND_OF(name##4, k, 4)
EMULATED_KIND(bool, boolean)
EMULATED_KIND(void, bytes)
EMULATED_KIND(char, bytes)
EMULATED_KIND(signed char, integer)
EMULATED_KIND(short, integer)
EMULATED_KIND(int, integer)
EMULATED_KIND(long, integer)
EMULATED_KIND(long long, integer)
EMULATED_KIND(unsigned char, natural)
EMULATED_KIND(unsigned short, natural)
EMULATED_KIND(unsigned int, natural)
EMULATED_KIND(unsigned long, natural)
EMULATED_KIND(unsigned long long, natural)
EMULATED_KIND(float, floating)
EMULATED_KIND(double, floating)
EMULATED_KIND(__half, half)
EMULATED_KIND(__nv_bfloat16, bfloat16)
EMULATED_KIND_OF(__half2, half, 2)
EMULATED_KIND_OF(__nv_bfloat162, bfloat16, 2)
EMULATED_VECTOR_KIND(char, integer)
EMULATED_VECTOR_KIND(uchar, natural)
EMULATED_VECTOR_KIND(short, integer)
EMULATED_VECTOR_KIND(ushort, natural)
EMULATED_VECTOR_KIND(int, integer)
EMULATED_VECTOR_KIND(uint, natural)
EMULATED_VECTOR_KIND(long, integer)
EMULATED_VECTOR_KIND(ulong, natural)
EMULATED_VECTOR_KIND(longlong, integer)
EMULATED_VECTOR_KIND(ulonglong, natural)
EMULATED_VECTOR_KIND(float, floating)
EMULATED_VECTOR_KIND(double, floating)

template <class T> struct Plain { using type = T; static constexpr int constant = 0; };
template <class T> struct Plain<const T> { using type = T; static constexpr int constant = 1; };
template <class T> struct Plain<volatile T> { using type = T; static constexpr int constant = 0; };
template <class T> struct Plain<const volatile T> { using type = T; static constexpr int constant = 1; };
template <class T> struct SizeOf { static constexpr int bytes = sizeof(T); };
template <> struct SizeOf<void> { static constexpr int bytes = 1; };

template <class T> struct Describe {
  static constexpr Parameter parameter() { return {0, 1, int(KindOf<T>::kind), KindOf<T>::lanes, SizeOf<T>::bytes}; }
};
template <class T> struct Describe<T *> {
  using Target = typename Plain<T>::type;
  static constexpr Parameter parameter() {
    return {1, Plain<T>::constant, int(KindOf<Target>::kind), KindOf<Target>::lanes, SizeOf<Target>::bytes};
  }
};

template <int... numbers> struct Numbers {};
template <int n, int... rest> struct CountTo : CountTo<n - 1, n - 1, rest...> {};
template <int... rest> struct CountTo<0, rest...> { using type = Numbers<rest...>; };

template <class Function> struct Entry;
template <class... P> struct Entry<void (*)(P...)> {
  using Function = void (*)(P...);
  template <Function kernel, int... i>
  static EMULATED_UNWATCHED void call(void **values, Numbers<i...>) {
    kernel(*static_cast<typename Plain<P>::type *>(values[i])...);
  }
  template <Function kernel>
  static EMULATED_UNWATCHED void run(void **values) { call<kernel>(values, typename CountTo<sizeof...(P)>::type()); }

  static EMULATED_UNWATCHED int describe(Parameter *parameters) {
    int count = 0;
    ((parameters[count++] = Describe<typename Plain<P>::type>::parameter()), ...);
    return count;
  }
};

}  // namespace emulated

// Exports kernel number n under the names by which Python finds it.
#define EMULATED_ENTRY(n, ...)                                                                                \
  namespace emulated_entry_##n {                                                                              \
  constexpr auto kernel = &__VA_ARGS__;                                                                       \
  using Entry = ::emulated::Entry<typename ::emulated::Plain<decltype(kernel)>::type>;                        \
  }                                                                                                           \
  extern "C" __attribute__((visibility("default"))) EMULATED_UNWATCHED int                                    \
  emulated_describe_##n(::emulated::Parameter *parameters) { return emulated_entry_##n::Entry::describe(parameters); } \
  extern "C" __attribute__((visibility("default"))) EMULATED_UNWATCHED void                                   \
  emulated_run_##n(void **values) { emulated_entry_##n::Entry::run<emulated_entry_##n::kernel>(values); }
