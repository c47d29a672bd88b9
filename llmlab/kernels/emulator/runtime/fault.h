// The first thing that goes wrong in a launch, as numbers; Python makes the sentence. Mirrored in native.py.
#pragma once
#include "stacks.h"

namespace emulated {

enum class FaultKind : int {
  none, out_of_bounds, misaligned, null_pointer, foreign_local, array_bounds, race, uninitialised, never_written,
  divergent_barrier, inactive_lane, shared_limit, static_shared_limit, division_by_zero, endless_loop,
  memory_fault, stopped, interrupted, too_many_accesses,
};
enum class Space : int { none, global, shared, local };

struct Place {                // an instruction, innermost call first
  const char *file;
  int line, column;
  int depth;
  void *pcs[MAX_CALLS + 2];
};

struct Fault {
  FaultKind kind;
  Space space;
  Access access;
  int region;                 // of global memory
  int64_t offset;             // in bytes, from the start of the region or shared variable
  int64_t count;              // unwritten elements; lane that was read ...
  uint64_t bytes, extent, element;
  unsigned block[3], thread[3];
  Place place;
  Access other_access;        // the other side of a race
  unsigned other_block[3], other_thread[3];
  Place other_place;
  char name[64];              // shared variable, barrier or instruction
  char detail[4096];          // who waits where
};

static Fault fault;
static bool failed;
static void *scheduler_stack;

static void put(unsigned *to, uint3 from) { to[0] = from.x; to[1] = from.y; to[2] = from.z; }

static uint3 thread_index(unsigned linear) {
  const dim3 &b = context.block;
  return {linear % b.x, linear / b.x % b.y, linear / (b.x * b.y)};
}

static uint3 block_index(uint64_t serial) {
  const uint64_t i = serial - 1, x = context.grid.x, y = context.grid.y;
  return {unsigned(i % x), unsigned(i / x % y), unsigned(i / (x * y))};
}

static void set_place(Place &place, const Thread *thread, Site site) {
  place.file = site.file;
  place.line = site.line;
  place.depth = 0;
  if (site.pc) place.pcs[place.depth++] = site.pc;
  if (!thread) return;
  for (unsigned d = thread->depth < MAX_CALLS ? thread->depth : MAX_CALLS; d-- > 0;) place.pcs[place.depth++] = thread->calls[d];
}

static void set_name(const char *name) { strncpy(fault.name, name, sizeof fault.name - 1); }

// Starts the report of a fault of `thread` (null: of the block as a whole).
static Fault &begin_fault(FaultKind kind, const Thread *thread, Site site) {
  memset((void *)&fault, 0, sizeof fault);
  fault.kind = kind;
  fault.region = -1;
  failed = true;
  put(fault.block, context.block_index);
  if (thread) put(fault.thread, thread->index);
  set_place(fault.place, thread, site);
  return fault;
}

static void leave(Thread *thread) { emulated_switch(&thread->stack_pointer, scheduler_stack); }

// Ends the running thread for good; the scheduler sees `failed` and ends the launch.
[[noreturn]] static void give_up() {
  context.self->state = State::returned;
  leave(context.self);
  abort();
}

}  // namespace emulated
