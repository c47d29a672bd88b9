// Rows of numbers on their way through registers: packs, and how a row is dealt out to the threads of a team.
#pragma once
#include "common.cuh"

// Two 16-bit floats in the word they share, or one float32; the element with the lower index in the low half.
template <class T> struct Word;
template <> struct Word<float> {
  __device__ __forceinline__ static void get(unsigned w, float (&v)[1]) { v[0] = __uint_as_float(w); }
  __device__ __forceinline__ static unsigned set(const float (&v)[1]) { return __float_as_uint(v[0]); }
};
template <> struct Word<__nv_bfloat16> {
  __device__ __forceinline__ static void get(unsigned w, float (&v)[2]) {
    v[0] = __uint_as_float(w << 16);  // a bfloat16 is the upper half of a float32
    v[1] = __uint_as_float(w & 0xffff0000u);
  }
  __device__ __forceinline__ static unsigned set(const float (&v)[2]) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(v[0], v[1]);
    return reinterpret_cast<const unsigned&>(pair);
  }
};
template <> struct Word<__half> {
  __device__ __forceinline__ static void get(unsigned w, float (&v)[2]) {
    v[0] = __low2float(reinterpret_cast<const __half2&>(w));
    v[1] = __high2float(reinterpret_cast<const __half2&>(w));
  }
  __device__ __forceinline__ static unsigned set(const float (&v)[2]) {
    const __half2 pair = __floats2half2_rn(v[0], v[1]);
    return reinterpret_cast<const unsigned&>(pair);
  }
};

// The unsigned type that moves `bytes` bytes with one instruction, in an array of words.
template <int bytes> struct Access;
template <> struct Access<2> { using type = unsigned short; };
template <> struct Access<4> { using type = unsigned; };
template <> struct Access<8> { using type = uint2; };
template <> struct Access<16> { using type = uint4; };

// A pack: E neighbours that travel together. Kept as words, not as T, of which the compiler would give each 16-bit
// element a 32-bit register of its own.
template <class T, int E>
struct Packed {
  static_assert(E * sizeof(T) == 2 || E * sizeof(T) == 4 || E * sizeof(T) == 8 || E * sizeof(T) == 16,
                "a pack is what one instruction moves: 2, 4, 8 or 16 bytes");
  static constexpr int PER_WORD = 4 / sizeof(T);
  static constexpr int WORDS = (E + PER_WORD - 1) / PER_WORD;
  using Memory = typename Access<E * sizeof(T)>::type;
  unsigned word[WORDS];

  __device__ __forceinline__ static Packed from(Memory m) {
    if constexpr (WORDS == 4) return {m.x, m.y, m.z, m.w};
    else if constexpr (WORDS == 2) return {m.x, m.y};
    else return {m};
  }
  __device__ __forceinline__ static Packed load(const T* p) { return from(*reinterpret_cast<const Memory*>(p)); }
  __device__ __forceinline__ void store(T* p) const {
    Memory* m = reinterpret_cast<Memory*>(p);
    if constexpr (WORDS == 4) *m = make_uint4(word[0], word[1], word[2], word[3]);
    else if constexpr (WORDS == 2) *m = make_uint2(word[0], word[1]);
    else *m = static_cast<Memory>(word[0]);
  }

  __device__ __forceinline__ void get(float (&v)[E]) const {
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
      float in_word[PER_WORD];
      Word<T>::get(word[i], in_word);
#pragma unroll
      for (int e = 0; e < PER_WORD && i * PER_WORD + e < E; e++) v[i * PER_WORD + e] = in_word[e];
    }
  }
  __device__ __forceinline__ void set(const float (&v)[E]) {
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
      float in_word[PER_WORD];
#pragma unroll
      for (int e = 0; e < PER_WORD; e++) in_word[e] = i * PER_WORD + e < E ? v[i * PER_WORD + e] : 0.0f;
      word[i] = Word<T>::set(in_word);
    }
  }
};

// How a row of C numbers is dealt out to a team of W warps: thread t owns packs of E elements at columns (k*32*W + t)*E for
// k = 0, 1, ..., so that at each k the team covers one unbroken stretch. Columns at or past C belong to no one.
template <int E, int W> __device__ __forceinline__ int column_of(int k, int thread) { return (k * WARP * W + thread) * E; }

// Such a row, held in registers, K packs a thread. Past C it reads as zero and is never written.
template <class T, int E, int K, int W>
struct Row {
  Packed<T, E> pack[K];

  __device__ __forceinline__ void load(const T* row, int thread, int C) {
#pragma unroll
    for (int k = 0; k < K; k++) {
      if (column_of<E, W>(k, thread) < C) pack[k] = Packed<T, E>::load(row + column_of<E, W>(k, thread));
      else pack[k] = {};
    }
  }
  __device__ __forceinline__ void store(T* row, int thread, int C) const {
#pragma unroll
    for (int k = 0; k < K; k++)
      if (column_of<E, W>(k, thread) < C) pack[k].store(row + column_of<E, W>(k, thread));
  }

  // Makes the compiler forget what it knows of the words. Otherwise it converts a row that is used twice to float32 for
  // good, which for 16-bit types doubles the registers it takes; converting again costs one instruction an element.
  __device__ __forceinline__ void keep_packed() {
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
      for (int i = 0; i < Packed<T, E>::WORDS; i++) asm volatile("" : "+r"(pack[k].word[i]));
  }
};
