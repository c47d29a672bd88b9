// What the lanes of a warp do together: shuffles, votes, matches, reductions, __syncwarp.
#pragma once
#include "thread.h"

namespace emulated {

// Every lane of `mask` brings `data`; the last one to arrive runs `exchange` for all of them.
using Exchange = void (*)(void **data, unsigned mask);
void collective(const char *name, unsigned mask, void *data, Exchange exchange, Site site);
[[noreturn]] void inactive_source(const char *name, unsigned lane, unsigned source, unsigned mask);

unsigned vote(unsigned mask, int predicate, const char *name, Site site);
void sync_warp(unsigned mask, Site site);
unsigned converged_lanes(Site site);
inline EMULATED_UNWATCHED unsigned lane() { return context.self->lane; }

template <class T> struct Lane { T value, result; unsigned source; };

template <class T>
EMULATED_UNWATCHED void move_between_lanes(void **data, unsigned mask) {
  for (unsigned lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    auto *to = static_cast<Lane<T> *>(data[lane]);
    if (!(mask >> to->source & 1)) inactive_source(nullptr, lane, to->source, mask);
    to->result = static_cast<Lane<T> *>(data[to->source])->value;
  }
}

template <class T>
EMULATED_INLINE T shuffle(const char *name, unsigned mask, T value, unsigned source, Site site) {
  Lane<T> lane{value, value, source};
  collective(name, mask, &lane, move_between_lanes<T>, site);
  return lane.result;
}

// The first lane of the group of `width` lanes in which `lane` is.
EMULATED_INLINE unsigned first_of_group(unsigned lane, int width) { return lane & ~unsigned(width - 1); }

template <class T, class Combine>
EMULATED_UNWATCHED void combine_lanes(void **data, unsigned mask) {
  T total{};
  bool first = true;
  for (unsigned lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    T value = static_cast<Lane<T> *>(data[lane])->value;
    total = first ? value : Combine::apply(total, value);
    first = false;
  }
  for (unsigned lane = 0; lane < WARP; lane++)
    if (mask >> lane & 1) static_cast<Lane<T> *>(data[lane])->result = total;
}

template <class T>
EMULATED_UNWATCHED void match_lanes(void **data, unsigned mask) {
  for (unsigned lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    auto *mine = static_cast<Lane<T> *>(data[lane]);
    mine->source = 0;
    for (unsigned other = 0; other < WARP; other++)
      if (mask >> other & 1 && static_cast<Lane<T> *>(data[other])->value == mine->value) mine->source |= 1u << other;
  }
}

struct Add { template <class T> static EMULATED_UNWATCHED T apply(T a, T b) { return T(a + b); } };
struct Min { template <class T> static EMULATED_UNWATCHED T apply(T a, T b) { return b < a ? b : a; } };
struct Max { template <class T> static EMULATED_UNWATCHED T apply(T a, T b) { return a < b ? b : a; } };
struct And { template <class T> static EMULATED_UNWATCHED T apply(T a, T b) { return a & b; } };
struct Or { template <class T> static EMULATED_UNWATCHED T apply(T a, T b) { return a | b; } };
struct Xor { template <class T> static EMULATED_UNWATCHED T apply(T a, T b) { return a ^ b; } };

template <class Combine, class T>
EMULATED_INLINE T reduce(const char *name, unsigned mask, T value, Site site) {
  Lane<T> lane{value, value, 0};
  collective(name, mask, &lane, combine_lanes<T, Combine>, site);
  return lane.result;
}

template <class T>
EMULATED_INLINE unsigned match(const char *name, unsigned mask, T value, Site site) {
  Lane<T> lane{value, value, 0};
  collective(name, mask, &lane, match_lanes<T>, site);
  return lane.source;
}

}  // namespace emulated

template <class T>
EMULATED_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMULATED_HERE) {
  unsigned from = emulated::first_of_group(emulated::lane(), width) + (source & (width - 1));
  return emulated::shuffle("__shfl_sync", mask, value, from, {file, line});
}
template <class T>
EMULATED_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATED_HERE) {
  unsigned lane = emulated::lane(), place = lane & (width - 1);
  return emulated::shuffle("__shfl_up_sync", mask, value, place >= delta ? lane - delta : lane, {file, line});
}
template <class T>
EMULATED_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATED_HERE) {
  unsigned lane = emulated::lane(), place = lane & (width - 1);
  return emulated::shuffle("__shfl_down_sync", mask, value, place + delta < unsigned(width) ? lane + delta : lane, {file, line});
}
template <class T>
EMULATED_INLINE T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMULATED_HERE) {
  unsigned lane = emulated::lane(), from = lane ^ unsigned(bits);
  bool beyond = emulated::first_of_group(from, width) > emulated::first_of_group(lane, width);
  return emulated::shuffle("__shfl_xor_sync", mask, value, beyond ? lane : from, {file, line});
}

inline EMULATED_UNWATCHED void __syncwarp(unsigned mask = 0xffffffffu, EMULATED_HERE) { emulated::sync_warp(mask, {file, line}); }
inline EMULATED_UNWATCHED unsigned __activemask(EMULATED_HERE) { return emulated::converged_lanes({file, line}); }
inline EMULATED_UNWATCHED unsigned __ballot_sync(unsigned mask, int predicate, EMULATED_HERE) {
  return emulated::vote(mask, predicate, "__ballot_sync", {file, line});
}
inline EMULATED_UNWATCHED int __any_sync(unsigned mask, int predicate, EMULATED_HERE) {
  return emulated::vote(mask, predicate, "__any_sync", {file, line}) != 0;
}
inline EMULATED_UNWATCHED int __all_sync(unsigned mask, int predicate, EMULATED_HERE) {
  return emulated::vote(mask, !predicate, "__all_sync", {file, line}) == 0;
}

template <class T> EMULATED_INLINE unsigned __match_any_sync(unsigned mask, T value, EMULATED_HERE) {
  return emulated::match("__match_any_sync", mask, value, {file, line});
}
template <class T> EMULATED_INLINE unsigned __match_all_sync(unsigned mask, T value, int *all, EMULATED_HERE) {
  unsigned same = emulated::match("__match_all_sync", mask, value, {file, line});
  *all = same == mask;
  return *all ? mask : 0;
}

#define EMULATED_REDUCE(name, Combine)                                                  \
  template <class T> EMULATED_INLINE T name(unsigned mask, T value, EMULATED_HERE) {    \
    return emulated::reduce<emulated::Combine>(#name, mask, value, {file, line});       \
  }
EMULATED_REDUCE(__reduce_add_sync, Add)
EMULATED_REDUCE(__reduce_min_sync, Min)
EMULATED_REDUCE(__reduce_max_sync, Max)
EMULATED_REDUCE(__reduce_and_sync, And)
EMULATED_REDUCE(__reduce_or_sync, Or)
EMULATED_REDUCE(__reduce_xor_sync, Xor)
