// Barriers of a block, fences, and the other ways in which a thread waits.
#pragma once
#include "thread.h"

namespace emulated {

enum class Vote : int { none, count, any, all };

// Waits until every thread of the block has come to this barrier; returns the vote on `value`.
int block_barrier(Vote vote, int value, const char *name, Site site);
void fence(bool whole_grid);
void yield();
[[noreturn]] void stop(const char *why, Site site);

}  // namespace emulated

inline EMULATED_UNWATCHED void __syncthreads(EMULATED_HERE) {
  emulated::block_barrier(emulated::Vote::none, 0, "__syncthreads", {file, line});
}
inline EMULATED_UNWATCHED int __syncthreads_count(int predicate, EMULATED_HERE) {
  return emulated::block_barrier(emulated::Vote::count, predicate, "__syncthreads_count", {file, line});
}
inline EMULATED_UNWATCHED int __syncthreads_or(int predicate, EMULATED_HERE) {
  return emulated::block_barrier(emulated::Vote::any, predicate, "__syncthreads_or", {file, line});
}
inline EMULATED_UNWATCHED int __syncthreads_and(int predicate, EMULATED_HERE) {
  return emulated::block_barrier(emulated::Vote::all, predicate, "__syncthreads_and", {file, line});
}

inline EMULATED_UNWATCHED void __threadfence_block() { emulated::fence(false); }
inline EMULATED_UNWATCHED void __threadfence() { emulated::fence(true); }
inline EMULATED_UNWATCHED void __threadfence_system() { emulated::fence(true); }

inline EMULATED_UNWATCHED void __nanosleep(unsigned) { emulated::yield(); }

inline EMULATED_UNWATCHED void __trap(EMULATED_HERE) { emulated::stop("__trap()", {file, line}); }
#undef assert
#define assert(condition) ((condition) ? void(0) : ::emulated::stop("assert(" #condition ")", {__FILE__, __LINE__}))
