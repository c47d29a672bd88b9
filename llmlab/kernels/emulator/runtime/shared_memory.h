// Where the shared variables of a block lie. Static ones are placed as the kernel comes to their declarations.
#pragma once
#include "fault.h"

namespace emulated {

constexpr size_t RED_ZONE = 128;        // between variables, so that an overrun meets none of them
constexpr unsigned MAX_VARIABLES = 256;
constexpr size_t STATIC_ROOM = MAX_STATIC_SHARED + MAX_VARIABLES * 2 * RED_ZONE;

struct SharedRecord {
  const char *name;
  char *begin;
  size_t bytes, element;
  uint32_t warps;   // those that have touched it
};

// Both kinds lie in one arena, far from its ends and from each other, so that a stray index stays in it.
constexpr size_t FAR = 1 << 20;
constexpr size_t sizeof_dynamic_shared = MAX_SHARED + FAR;
alignas(1024) static char shared_arena[FAR + STATIC_ROOM + FAR + sizeof_dynamic_shared];
static char *const static_shared_memory = shared_arena + FAR;
static char *const dynamic_shared_memory = shared_arena + (FAR + STATIC_ROOM + FAR) / 1024 * 1024;
static SharedRecord shared_variables[MAX_VARIABLES];
static SharedRecord dynamic_record = {"the dynamic shared memory", dynamic_shared_memory, 0, 1, 0};
static unsigned shared_count;
static size_t static_used, static_total;   // with and without red zones

// Uninitialised memory holds NaNs.
static void poison_shared() {
  memset(static_shared_memory, 0xff, static_used);
  memset(dynamic_shared_memory, 0xff, dynamic_record.bytes);
}

static void begin_shared(size_t dynamic_bytes) {
  shared_count = 0;
  static_used = RED_ZONE;
  static_total = 0;
  dynamic_record.bytes = dynamic_bytes;
}

void *place_shared(const char *name, size_t bytes, size_t element, Site site) {
  static_total += bytes;
  const bool too_much_static = static_total > MAX_STATIC_SHARED || shared_count == MAX_VARIABLES;
  if (too_much_static || static_total + dynamic_record.bytes > MAX_SHARED) {
    site.pc = __builtin_return_address(0);
    begin_fault(too_much_static ? FaultKind::static_shared_limit : FaultKind::shared_limit, context.self, site);
    set_name(name);
    fault.bytes = static_total;
    fault.extent = dynamic_record.bytes;
    give_up();
  }
  char *begin = static_shared_memory + static_used;
  memset(begin, 0xff, bytes);
  shared_variables[shared_count++] = {name, begin, bytes, element, 0};
  static_used += (bytes + 2 * RED_ZONE - 1) / RED_ZONE * RED_ZONE;
  return begin;
}

void *find_dynamic_shared(const char *name, size_t element) {
  dynamic_record.name = name;
  dynamic_record.element = element;
  return dynamic_shared_memory;
}

}  // namespace emulated
