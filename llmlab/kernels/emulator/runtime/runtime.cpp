// The emulator's engine. Compiled once for each compiler and mode, and linked to every kernel.
#include "stacks.h"
#include "fault.h"
#include "watch.h"
#include "scheduler.h"
#include "waiting.h"
#include "shared_memory.h"
#include "launch.h"

namespace emulated {
Context context;
#if !defined(EMULATED_WATCHED)
static inline void touch_from(const void *, size_t, Access, void *, int) {}
#endif
}  // namespace emulated

#if defined(EMULATED_WATCHED)
#include "races.h"
#include "checker.h"
#include "sanitizer_hooks.h"
#endif
#include "tensor_core.h"
#include "async_copies.h"
