// Runs the threads of one block: warp by warp, each thread until it must wait.
#pragma once
#include "watch.h"

namespace emulated {

// Lanes of one warp that meet in a collective.
struct Meeting {
  const char *name;
  unsigned mask, arrived;
  Exchange exchange;
  bool needs_all;           // data of a lane that has returned would be missing
};

struct Warp {
  unsigned lanes;           // mask of the lanes that exist
  unsigned returned;
  unsigned meetings;
  Meeting meeting[WARP];
};

static Thread threads[MAX_THREADS];
static Warp warps[MAX_THREADS / WARP];
static unsigned warp_count, waiting_at_barrier, returned_threads;
static uint64_t barriers_passed;
static void (*run_kernel)(void **);
static void **kernel_values;

static void thread_entry() {
  run_kernel(kernel_values);
  context.self->state = State::returned;
  leave(context.self);
  abort();
}

static void wake(unsigned first, unsigned mask) {
  for (unsigned lane = 0; lane < WARP; lane++)
    if (mask >> lane & 1) threads[first + lane].state = State::ready;
}

// Runs the exchange of a complete meeting and lets its lanes go on.
static void hold_meeting(Warp &warp, unsigned first, unsigned which) {
  Meeting meeting = warp.meeting[which];
  warp.meeting[which] = warp.meeting[--warp.meetings];
  void *data[WARP] = {};
  for (unsigned lane = 0; lane < WARP; lane++)
    if (meeting.arrived >> lane & 1) data[lane] = threads[first + lane].data;
  if (meeting.exchange) meeting.exchange(data, meeting.arrived);
  warp_meets(first / WARP, meeting.arrived, !meeting.exchange);   // only __syncwarp orders memory
  wake(first, meeting.arrived);
}

[[noreturn]] static void missing_lane(Thread *caller, const Meeting &meeting, unsigned lane) {
  begin_fault(FaultKind::inactive_lane, caller, caller->site);
  set_name(meeting.name);
  fault.count = lane;
  fault.extent = meeting.mask;
  strcpy(fault.detail, "returned");
  give_up();
}

// A lane that returns may be the last that others wait for, or one that can no longer come.
static void thread_returned(Thread &thread) {
  Warp &warp = warps[thread.warp];
  warp.returned |= 1u << thread.lane;
  returned_threads++;
  stacks.give_back(thread.stack);
  thread.stack = nullptr;
  for (unsigned i = 0; i < warp.meetings && !failed;) {
    Meeting &meeting = warp.meeting[i];
    const unsigned gone = meeting.mask & warp.returned;
    if (gone && meeting.needs_all) {
      const unsigned first = thread.warp * WARP;
      context.self = &threads[first + __builtin_ctz(meeting.arrived)];
      begin_fault(FaultKind::inactive_lane, context.self, context.self->site);
      set_name(meeting.name);
      fault.count = __builtin_ctz(gone);
      fault.extent = meeting.mask;
      strcpy(fault.detail, "returned");
      return;
    }
    if (gone && (meeting.arrived | gone) == meeting.mask) hold_meeting(warp, thread.warp * WARP, i);
    else i++;
  }
}

static void resume(Thread &thread) {
  if (!thread.stack) {
    thread.stack = stacks.take();
    thread.stack_pointer = prepared_stack(thread.stack, thread_entry);
  }
  context.self = &thread;
  emulated_switch(&scheduler_stack, thread.stack_pointer);
  if (!failed && thread.state == State::returned) thread_returned(thread);
}

static bool run_ready_lanes(unsigned w) {
  bool progress = false;
  const unsigned first = w * WARP, end = first + WARP < context.threads ? first + WARP : context.threads;
  for (unsigned i = first; i < end; i++) {
    if (threads[i].state != State::ready || threads[i].yielded) continue;
    progress = true;
    resume(threads[i]);
    if (failed) return false;
  }
  return progress;
}

// Lanes that asked __activemask: when all others have run ahead or wait, those at one place go on together.
static bool release_converged(unsigned w) {
  const unsigned first = w * WARP, end = first + WARP < context.threads ? first + WARP : context.threads;
  for (unsigned i = first; i < end; i++) {
    if (threads[i].state != State::converging) continue;
    unsigned together = 0;
    for (unsigned j = i; j < end; j++) {
      const bool same = threads[j].state == State::converging && threads[j].site.line == threads[i].site.line;
      if (same) together |= 1u << threads[j].lane;
    }
    for (unsigned j = i; j < end; j++) {
      if (!(together >> threads[j].lane & 1)) continue;
      threads[j].mask = together;
      threads[j].state = State::ready;
    }
    return true;
  }
  return false;
}

static bool run_warps() {
  bool progress = false;
  for (unsigned w = 0; w < warp_count; w++) {
    while (run_ready_lanes(w) || (!failed && release_converged(w))) progress = true;
    if (failed) return false;
  }
  for (unsigned i = 0; i < context.threads; i++) {
    progress |= threads[i].yielded;
    threads[i].yielded = false;
  }
  return progress;
}

static bool same_site(const Site &a, const Site &b) { return a.line == b.line && !strcmp(a.file, b.file); }

static bool all_at_one_barrier() {
  if (waiting_at_barrier != context.threads) return false;
  for (unsigned i = 1; i < context.threads; i++)
    if (!same_site(threads[i].site, threads[0].site)) return false;
  return true;
}

static void pass_barrier() {
  int votes = 0;
  for (unsigned i = 0; i < context.threads; i++) votes += threads[i].value;
  for (unsigned i = 0; i < context.threads; i++) {
    threads[i].value = votes;
    threads[i].state = State::ready;
  }
  waiting_at_barrier = 0;
  barriers_passed++;
  block_synchronised();
}

// Nothing can run and not all have returned: says in groups who waits where and who has returned.
static void report_divergence() {
  const Thread *waiting = nullptr;
  for (unsigned i = 0; i < context.threads && !waiting; i++)
    if (threads[i].state == State::at_barrier) waiting = &threads[i];
  for (unsigned i = 0; i < context.threads && !waiting; i++)
    if (threads[i].state == State::in_collective) waiting = &threads[i];
  begin_fault(FaultKind::divergent_barrier, waiting, waiting->site);
  set_name(waiting->waits_for);
  size_t used = 0;
  for (unsigned i = 0; i < context.threads && used + 256 < sizeof fault.detail;) {
    const Thread &a = threads[i];
    const bool gone = a.state == State::returned;
    unsigned end = i + 1;
    for (; end < context.threads; end++) {
      const Thread &b = threads[end];
      if (b.state != a.state || (!gone && (!same_site(a.site, b.site) || a.mask != b.mask))) break;
    }
    // One line a group: first, last, state, name, file, line, mask.
    used += snprintf(fault.detail + used, sizeof fault.detail - used, "%u\t%u\t%s\t%s\t%d\t%u\n", i, end - 1,
                     gone ? "" : a.waits_for, gone ? "" : a.site.file, gone ? 0 : a.site.line,
                     a.state == State::in_collective ? a.mask : 0);
    i = end;
  }
}

static void begin_block() {
  const unsigned n = context.threads;
  warp_count = (n + WARP - 1) / WARP;
  waiting_at_barrier = returned_threads = 0;
  stacks.reset();
  for (unsigned w = 0; w < warp_count; w++) {
    const unsigned lanes = n - w * WARP;
    warps[w].lanes = lanes >= WARP ? 0xffffffffu : (1u << lanes) - 1;
    warps[w].returned = warps[w].meetings = 0;
  }
  uint3 index = {0, 0, 0};
  for (unsigned i = 0; i < n; i++) {
    Thread &t = threads[i];
    t.index = index;
    t.linear = i;
    t.lane = i % WARP;
    t.warp = i / WARP;
    t.state = State::ready;
    t.yielded = false;
    t.stack = nullptr;
    t.depth = 0;
    t.waits_for = nullptr;
    if (++index.x < context.block.x) continue;
    index.x = 0;
    if (++index.y < context.block.y) continue;
    index.y = 0;
    index.z++;
  }
  block_begins();
}

static void run_block() {
  begin_block();
  for (;;) {
    while (run_warps()) {}
    if (failed || returned_threads == context.threads) break;
    if (all_at_one_barrier()) pass_barrier();
    else report_divergence();
    if (failed) break;
  }
  block_ends();
}

}  // namespace emulated
