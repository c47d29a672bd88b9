// A launch: limits, signals, the loop over blocks. Mirrored in native.py.
#pragma once
#include "scheduler.h"
#include "shared_memory.h"

namespace emulated {

// A stretch of global memory that arguments point to.
struct Region {
  char *begin;
  uint64_t bytes, granule;   // bytes that are watched as one
  int must_be_written;       // an output: every element must be written
  int uninitialised;         // and none may be read before
};

struct Launch {
  void (*run)(void **);
  void **values;
  unsigned grid[3], block[3];
  uint64_t shared_bytes;
  const Region *regions;
  int region_count;
  double time_limit;         // seconds of processor time
  void *stacks;
};

static const Launch *launching;
static sigjmp_buf escape;
static pthread_t launcher;
static void *last_pc;         // of the last watched access

static FaultKind kind_of_signal(int signal) {
  switch (signal) {
    case SIGFPE: return FaultKind::division_by_zero;
    case SIGVTALRM: return FaultKind::endless_loop;
    case SIGINT: return FaultKind::interrupted;
    default: return FaultKind::memory_fault;
  }
}

static void *interrupted_pc(void *ucontext) {
#if defined(__linux__) && defined(__x86_64__)
  return (void *)static_cast<ucontext_t *>(ucontext)->uc_mcontext.gregs[16];   // REG_RIP
#elif defined(__linux__) && defined(__aarch64__)
  return (void *)static_cast<ucontext_t *>(ucontext)->uc_mcontext.pc;
#else
  return nullptr;
#endif
}

// A fault inside a kernel becomes a report, not the end of the process.
static void on_signal(int signal, siginfo_t *info, void *ucontext) {
  const bool from_outside = signal == SIGVTALRM || signal == SIGINT;
  if (from_outside && !pthread_equal(pthread_self(), launcher)) {
    pthread_kill(launcher, signal);
    return;
  }
  Site site;
  site.pc = interrupted_pc(ucontext);
  begin_fault(kind_of_signal(signal), context.self, site);
  if (last_pc && fault.place.depth <= int(MAX_CALLS)) {
    memmove(fault.place.pcs + 2, fault.place.pcs + 1, (fault.place.depth - 1) * sizeof(void *));
    fault.place.pcs[1] = last_pc;
    fault.place.depth++;
  }
  if (!from_outside) fault.offset = (int64_t)info->si_addr;
  siglongjmp(escape, 1);
}

constexpr int CAUGHT[] = {SIGSEGV, SIGBUS, SIGFPE, SIGVTALRM, SIGINT};
constexpr int CAUGHT_COUNT = sizeof CAUGHT / sizeof *CAUGHT;

static void set_timer(double seconds) {
  itimerval timer = {};
  timer.it_value.tv_sec = (long)seconds;
  timer.it_value.tv_usec = (long)((seconds - (double)(long)seconds) * 1e6);
  setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

struct SignalGuard {
  struct sigaction before[CAUGHT_COUNT];
  stack_t alternate_before;

  explicit SignalGuard(double time_limit) {
    static char alternate[64 << 10];   // the stack of the faulting thread may be full
    stack_t stack = {};
    stack.ss_sp = alternate;
    stack.ss_size = sizeof alternate;
    sigaltstack(&stack, &alternate_before);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < CAUGHT_COUNT; i++) sigaction(CAUGHT[i], &action, &before[i]);
    launcher = pthread_self();
    if (time_limit > 0) set_timer(time_limit);
  }
  ~SignalGuard() {
    set_timer(0);
    for (int i = 0; i < CAUGHT_COUNT; i++) sigaction(CAUGHT[i], &before[i], nullptr);
    sigaltstack(&alternate_before, nullptr);
  }
};

#if defined(EMULATED_WATCHED)
static bool launch_begins(const Launch &launch);
static void launch_ends(const Launch &launch);
#else
static bool launch_begins(const Launch &) { return true; }
static void launch_ends(const Launch &) {}
#endif

static void run_blocks(const Launch &launch) {
  const uint64_t blocks = uint64_t(launch.grid[0]) * launch.grid[1] * launch.grid[2];
  for (uint64_t serial = 1; serial <= blocks && !failed; serial++) {
    context.block_serial = serial;
    context.block_index = block_index(serial);
    if (serial > 1) poison_shared();
    run_block();
  }
}

}  // namespace emulated

#define EMULATED_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" __attribute__((visibility("hidden"))) char __ehdr_start;   // the linker's name for where the library begins
EMULATED_EXPORT void *emulated_image_base() { return &__ehdr_start; }

EMULATED_EXPORT void *emulated_reserve_stacks() { return emulated::reserve_stacks(); }

// Runs the whole grid; returns 0, or 1 with *report filled.
EMULATED_EXPORT int emulated_launch(const emulated::Launch *launch, emulated::Fault *report) {
  using namespace emulated;
  failed = false;
  last_pc = nullptr;
  launching = launch;
  run_kernel = launch->run;
  kernel_values = launch->values;
  stacks.base = static_cast<char *>(launch->stacks);
  context.self = nullptr;
  context.grid = dim3(launch->grid[0], launch->grid[1], launch->grid[2]);
  context.block = dim3(launch->block[0], launch->block[1], launch->block[2]);
  context.threads = launch->block[0] * launch->block[1] * launch->block[2];
  context.launch_serial++;
  begin_shared(launch->shared_bytes);
  poison_shared();
  if (!launch_begins(*launch)) return 2;
  {
    SignalGuard guard(launch->time_limit);
    if (!sigsetjmp(escape, 1)) run_blocks(*launch);
  }
  context.self = nullptr;
  launch_ends(*launch);
  if (failed) *report = fault;
  return failed;
}
