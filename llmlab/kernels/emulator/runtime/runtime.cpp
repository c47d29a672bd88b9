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
static bool completing_copies;
#endif
}  // namespace emulated

#if defined(EMULATED_WATCHED)
#include "checker.h"
#include "sanitizer_hooks.h"
#endif
#if defined(EMULATED_PROFILED)
#include "traffic.h"
#endif
#include "tensor_core.h"
#include "async_copies.h"
