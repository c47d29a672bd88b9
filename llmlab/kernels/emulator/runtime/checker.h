// Looks at every access before it happens: does the memory exist, has it been written, does another thread race?
#pragma once
#include "launch.h"
#include "order.h"

extern "C" __attribute__((visibility("hidden"))) char _end;   // the linker's name for where the library ends

namespace emulated {

// What is remembered of one element.
struct Cell {
  Mark write, read;
  uint32_t readers;         // lanes of the reading warp, since the last barrier
  uint16_t reader_before;   // another thread than the last reader
};

struct Shadow {
  char *begin;
  size_t bytes, granule;   // bytes that one cell stands for
  bool uninitialised;
  Cell *cells;
};

constexpr int MAX_REGIONS = 256;
static Shadow shadows[MAX_REGIONS];
static int shadow_count;
static int last_region;      // most accesses go where the last one went
static Cell *shared_cells[2];   // of static and of dynamic shared memory, by the byte where they begin

#if defined(EMULATED_PROFILED)
static void record_access(Space space, int region, char *address, size_t bytes, Access access, void *pc);
static void warp_met(unsigned warp, unsigned mask);
static void count_block();
static void profile_begins();
static void profile_ends();
static uint64_t barriers_counted;
#else
static void record_access(Space, int, char *, size_t, Access, void *) {}
static void warp_met(unsigned, unsigned) {}
static void count_block() {}
static void profile_begins() {}
static void profile_ends() {}
static uint64_t barriers_counted;
#endif

static uint32_t in_image(void *pc) { return uint32_t((char *)pc - &__ehdr_start); }

// A place in memory, as a report names it.
struct Target {
  Space space;
  int region;
  SharedRecord *variable;
  int64_t offset;

  void describe() const {
    fault.space = space;
    fault.region = region;
    fault.offset = offset;
    if (!variable) return;
    set_name(variable->name);
    fault.element = variable->element;
    fault.extent = variable->bytes;
  }
};

[[noreturn]] static void report_access(FaultKind kind, const Target &target, size_t bytes, Access access, void *pc) {
  begin_fault(kind, context.self, Site{nullptr, 0, pc});
  fault.bytes = bytes;
  fault.access = access;
  target.describe();
  give_up();
}

[[noreturn]] static void report_race(const Target &target, size_t bytes, Access access, void *pc, const Mark &other, Access other_access) {
  begin_fault(FaultKind::race, context.self, Site{nullptr, 0, pc});
  fault.bytes = bytes;
  fault.access = access;
  target.describe();
  fault.other_access = other.atomic ? Access::atomic : other_access;
  put(fault.other_block, block_index(other.block));
  put(fault.other_thread, thread_index(other.thread));
  fault.count = target.variable ? __builtin_popcount(target.variable->warps) : 0;
  fault.other_place.depth = 1;
  fault.other_place.pcs[0] = &__ehdr_start + other.pc;
  give_up();
}

// A read of shared memory that nobody has written may be an element never written, or a write that came too late
// because a barrier is missing. The end of the phase tells: until then the report waits.
static Fault pending;
static const void *pending_cell;
static bool completing_copies;   // of cp.async: a late write there is a missing wait, not a missing barrier

static void suspect(const void *cell, const Target &target, size_t bytes, Access access, void *pc) {
  if (pending_cell) return;
  begin_fault(FaultKind::uninitialised, context.self, Site{nullptr, 0, pc});
  failed = false;
  fault.bytes = bytes;
  fault.access = access;
  target.describe();
  pending = fault;
  pending_cell = cell;
}

static void report_suspect() {
  if (!pending_cell) return;
  fault = pending;
  failed = true;
}

static Mark mark_of(Access access, void *pc) {
  const Thread *self = context.self;
  Mark mark = {};
  mark.block = uint32_t(context.block_serial);
  mark.barrier = barriers_before;
  mark.time = warp_time[self->warp];
  mark.thread = uint16_t(self->linear);
  mark.atomic = access == Access::atomic;
  mark.pc = in_image(pc);
  return mark;
}

// A thread that reads the element unordered with the running one, which is about to write it; -1: none.
static int racing_reader(const Cell &cell) {
  const Mark &read = cell.read;
  const Thread *self = context.self;
  if (read.block != context.block_serial) return known.has(read.block) ? -1 : read.thread;
  if (read.barrier < barriers_before) return -1;
  if (read.many_warps || read.thread / WARP != self->warp) return read.thread == self->linear ? cell.reader_before : read.thread;
  for (unsigned lane = 0; lane < WARP; lane++) {
    const bool other = cell.readers >> lane & 1 && lane != self->lane;
    if (other && seen[self->warp][self->lane][lane] <= read.time) return int(self->warp * WARP + lane);
  }
  return -1;
}

static void remember_read(Cell &cell, Mark mark) {
  const Mark before = cell.read;
  const bool same_phase = before.block == mark.block && before.barrier == mark.barrier;
  const bool same_warp = before.thread / WARP == mark.thread / WARP;
  const bool covered = !same_phase || !same_warp || comes_before(before);
  if (same_phase && (before.many_warps || !same_warp)) mark.many_warps = true;
  if (before.thread != mark.thread) cell.reader_before = before.thread;
  if (covered) cell.readers = 0;
  else if (before.time < mark.time) mark.time = before.time;   // the older: rather miss a race than invent one
  cell.readers |= 1u << mark.thread % WARP;
  cell.read = mark;
}

static void check_cell(Cell &cell, const Target &target, size_t bytes, Access access, void *pc, bool uninitialised) {
  if (access != Access::write && uninitialised && !cell.write.block) suspect(&cell, target, bytes, access, pc);
  const bool both_atomic = access == Access::atomic && cell.write.atomic;
  if (cell.write.block && !both_atomic && !comes_before(cell.write))
    report_race(target, bytes, access, pc, cell.write, Access::write);
  const int reader = access != Access::read && cell.read.block ? racing_reader(cell) : -1;
  if (reader >= 0) {
    if (completing_copies && pending_cell == &cell) {
      report_suspect();
      give_up();
    }
    cell.read.thread = uint16_t(reader);
    report_race(target, bytes, access, pc, cell.read, Access::read);
  }
  if (access == Access::read) remember_read(cell, mark_of(access, pc));
  else cell.write = mark_of(access, pc);
}

// ---- shared memory

static SharedRecord *shared_variable_at(const char *p) {
  if (size_t(p - dynamic_shared_memory) < sizeof_dynamic_shared) return &dynamic_record;
  SharedRecord *nearest = nullptr;
  size_t least = SIZE_MAX;
  for (unsigned i = 0; i < shared_count; i++) {
    SharedRecord &v = shared_variables[i];
    const size_t distance = p < v.begin ? v.begin - p : p < v.begin + v.bytes ? 0 : p - (v.begin + v.bytes) + 1;
    if (distance < least) {
      least = distance;
      nearest = &v;
    }
  }
  return nearest ? nearest : &dynamic_record;
}

// Bytes that are watched as one: an element, but at most four bytes, for threads share float4s.
static size_t shared_granule(size_t element) {
  const size_t power = element & -element;
  return power < 4 ? power : 4;
}

static void check_shared(char *p, size_t bytes, Access access, void *pc) {
  SharedRecord *variable = shared_variable_at(p);
  Target target{Space::shared, -1, variable, p - variable->begin};
  if (target.offset < 0 || size_t(target.offset) + bytes > variable->bytes) {
    if (target.offset >= 0 && size_t(target.offset) < variable->bytes)   // a wide access that begins inside
      target.offset = variable->bytes;
    report_access(FaultKind::out_of_bounds, target, bytes, access, pc);
  }
  variable->warps |= 1u << context.self->warp;
  const bool dynamic = variable == &dynamic_record;
  Cell *cells = shared_cells[dynamic] + (variable->begin - (dynamic ? dynamic_shared_memory : static_shared_memory));
  const int64_t granule = shared_granule(variable->element), end = target.offset + int64_t(bytes);
  for (target.offset = target.offset / granule * granule; target.offset < end; target.offset += granule) {
    Cell &cell = cells[target.offset];
    if (cell.write.block != context.block_serial) cell.write = Mark();   // another block's memory
    if (cell.read.block != context.block_serial) cell.read = Mark();
    check_cell(cell, target, bytes, access, pc, true);
  }
}

static bool is_shared(const char *p) {
  return size_t(p - shared_arena) < sizeof shared_arena;
}

// ---- global memory

static int region_at(const char *p, size_t bytes) {
  for (int n = 0; n < shadow_count; n++) {
    const int i = (last_region + n) % shadow_count;
    if (p >= shadows[i].begin && p + bytes <= shadows[i].begin + shadows[i].bytes) return last_region = i;
  }
  return -1;
}

[[noreturn]] static void report_stray(char *p, size_t bytes, Access access, void *pc) {
  Target target{Space::global, -1, nullptr, 0};
  int64_t least = INT64_MAX;
  for (int i = 0; i < shadow_count; i++) {
    const int64_t offset = p - shadows[i].begin, size = shadows[i].bytes;
    const int64_t distance = offset < 0 ? -offset : offset >= size ? offset - size : 0;
    if (distance >= least) continue;
    least = distance;
    target.region = i;
    target.offset = offset >= 0 && offset < size ? size : offset;   // a wide access that begins inside: name what is missing
  }
  const bool null = target.region < 0 || llabs(int64_t(p)) < least;  // nearer to 0 than to any array
  report_access(null ? FaultKind::null_pointer : FaultKind::out_of_bounds, target, bytes, access, pc);
}

static void check_global(int region, char *p, size_t bytes, Access access, void *pc) {
  Shadow &shadow = shadows[region];
  const size_t first = (p - shadow.begin) / shadow.granule, last = (p + bytes - 1 - shadow.begin) / shadow.granule;
  for (size_t i = first; i <= last; i++) {
    const Target target{Space::global, region, nullptr, int64_t(i * shadow.granule)};
    check_cell(shadow.cells[i], target, bytes, access, pc, shadow.uninitialised);
  }
  if (access == Access::write) unfenced[context.self->linear] = barriers_before + 1;
}

// ---- every access comes here

static Target target_at(char *p, int region) {
  if (region >= 0) return {Space::global, region, nullptr, p - shadows[region].begin};
  SharedRecord *variable = shared_variable_at(p);
  return {Space::shared, -1, variable, p - variable->begin};
}

static void watch(const void *address, size_t bytes, Access access, void *pc, size_t alignment) {
  Thread *self = context.self;
  if (!self) return;
  char *p = (char *)address;
  const int region = region_at(p, bytes);
  const bool shared = region < 0 && is_shared(p);
  if (region < 0 && !shared) {
    if (stacks.holds(p)) {
      if (size_t(p - (char *)self->stack) < STACK_BYTES) return;
      report_access(FaultKind::foreign_local, Target{Space::local, -1, nullptr, 0}, bytes, access, pc);
    }
    if (p >= &__ehdr_start && p < &_end) return;   // constants, and the emulator's own variables such as threadIdx
    report_stray(p, bytes, access, pc);
  }
  last_pc = pc;
  if (uintptr_t(p) % alignment) report_access(FaultKind::misaligned, target_at(p, region), alignment, access, pc);
  if (shared) check_shared(p, bytes, access, pc);
  else check_global(region, p, bytes, access, pc);
  record_access(shared ? Space::shared : Space::global, region, p, bytes, access, pc);
}

static void check_alignment(void *address, size_t alignment, bool write, void *pc) {
  char *p = static_cast<char *>(address);
  const int region = region_at(p, 1);
  const bool known = region >= 0 || is_shared(p);
  if (known && uintptr_t(p) % alignment)
    report_access(FaultKind::misaligned, target_at(p, region), alignment, write ? Access::write : Access::read, pc);
}

void touch(const void *address, size_t bytes, size_t alignment, Access access, void *pc) {
  watch(address, bytes, access, pc, alignment);
}
void atomic_done(const void *address) { atomic_orders(address); }

// ---- a block

static void warp_meets(unsigned warp, unsigned mask, bool orders_memory) {
  if (orders_memory) lanes_synchronised(warp, mask);
  warp_met(warp, mask);
}

static void block_begins() {
  pending_cell = nullptr;
  dynamic_record.warps = 0;
  for (unsigned i = 0; i < shared_count; i++) shared_variables[i].warps = 0;
  order_begins();
}

static void block_synchronised() {
  report_suspect();
  count_block();
  barriers_counted++;
  barriers_before++;
}

// A fault that follows from the use of an uninitialised value is less to the point than the read of it.
static void block_ends() {
  const bool better = failed && fault.kind == FaultKind::race;
  if (!better) report_suspect();
  if (!failed) count_block();
}

// ---- a launch

static bool launch_begins(const Launch &launch) {
  shadow_count = 0;
  last_region = 0;
  forget_order();
  profile_begins();
  for (Cell *&cells : shared_cells) cells = static_cast<Cell *>(calloc(MAX_SHARED, sizeof(Cell)));
  bool enough = shared_cells[0] && shared_cells[1] && launch.region_count <= MAX_REGIONS;
  for (int i = 0; i < launch.region_count && enough; i++) {
    const Region &r = launch.regions[i];
    Cell *cells = static_cast<Cell *>(calloc(r.bytes / r.granule + 1, sizeof(Cell)));
    shadows[shadow_count++] = {r.begin, r.bytes, r.granule, r.uninitialised != 0, cells};
    enough = cells != nullptr;
  }
  return enough;
}

static void find_unwritten(int region) {
  const Shadow &shadow = shadows[region];
  const size_t cells = shadow.bytes / shadow.granule;
  size_t unwritten = 0, first = 0;
  for (size_t i = cells; i-- > 0;) {
    if (shadow.cells[i].write.block) continue;
    unwritten++;
    first = i;
  }
  if (!unwritten) return;
  begin_fault(FaultKind::never_written, nullptr, Site());
  fault.space = Space::global;
  fault.access = Access::write;
  fault.region = region;
  fault.offset = first * shadow.granule;
  fault.count = unwritten;
}

static void launch_ends(const Launch &launch) {
  for (int i = 0; i < shadow_count && !failed; i++)
    if (launch.regions[i].must_be_written) find_unwritten(i);
  if (!failed) profile_ends();
  for (int i = 0; i < shadow_count; i++) free(shadows[i].cells);
  for (Cell *cells : shared_cells) free(cells);
}

}  // namespace emulated
