// cp.async: copies from global to shared memory that are only sure to have happened after a wait.
// Here they happen as late as the wait allows, so that a missing wait shows as shared memory never written.
#pragma once
#include "thread.h"

namespace emulated {

// Copies `from_global` bytes of the 4, 8 or 16 and fills the rest with zeros, like the instruction's src-size.
void copy_async(void *shared, const void *global, int bytes, int from_global, Site site);
void commit_copies();
void wait_copies(int groups_left);

EMULATED_INLINE void cp_async16(void *shared, const void *global, int from_global = 16, EMULATED_HERE) {
  copy_async(shared, global, 16, from_global, {file, line});
}
template <int bytes>
EMULATED_INLINE void cp_async(void *shared, const void *global, int from_global = bytes, EMULATED_HERE) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  copy_async(shared, global, bytes, from_global, {file, line});
}
EMULATED_INLINE void cp_async_commit() { commit_copies(); }
template <int groups_left>
EMULATED_INLINE void cp_async_wait() { wait_copies(groups_left); }
EMULATED_INLINE void cp_async_wait_all() { commit_copies(); wait_copies(0); }

}  // namespace emulated
