// Counts what a hardware profiler counts: a warp's accesses by one instruction form a request, and a request costs as
// many 32-byte sectors (global memory) or wavefronts (shared memory) as its addresses need.
#pragma once
#include "checker.h"

namespace emulated {

constexpr unsigned SECTOR = 32;
constexpr unsigned BANKS = 32;             // of shared memory, four bytes wide
constexpr size_t MAX_EVENTS = 1 << 20;     // of one thread between two meetings of its warp

// One warp's lanes in one request. Mirrored in native.py.
struct Request {
  unsigned block[3];
  unsigned warp, lanes;                    // lanes: mask of those that take part
  int64_t offsets[WARP];                   // bytes from the start of the array
  uint32_t sectors, wavefronts;
};

// All requests of one instruction to one array. Mirrored in native.py.
struct Instruction {
  Place place;
  Space space;
  Access access;
  int region;                              // of global memory
  uint32_t bytes;                          // of one lane's access
  char name[64];                           // of the shared variable
  uint64_t requests, lanes, distinct_bytes;
  uint64_t sectors, ideal_sectors;
  uint64_t wavefronts, ideal_wavefronts;
  Request first, worst;
};

// Mirrored in native.py.
struct RegionTraffic {
  uint64_t bytes_read, bytes_written;      // at least once
};

struct Event {
  char *address;
  uint32_t instruction;
  uint32_t occurrence;
  uint32_t lane;
};

struct Events {
  Event *events;
  size_t count, room;
};

static Instruction *instructions;
static uint32_t instruction_count, instruction_room;
static Events thread_events[MAX_THREADS];
static uint64_t meetings_counted;
static RegionTraffic region_traffic[MAX_REGIONS];

// ---- which instruction is it: where it stands, how it was reached, what it touches

struct Key {
  void *pc;
  uint64_t path;        // of the calls that led there
  const void *target;
  uint32_t bytes;
  Access access;
  bool operator==(const Key &o) const {
    return pc == o.pc && path == o.path && target == o.target && bytes == o.bytes && access == o.access;
  }
  size_t hash() const {
    uint64_t h = uint64_t(pc) ^ path * 31 ^ uint64_t(target) * 7 ^ bytes ^ uint64_t(access) << 8;
    return size_t((h ^ h >> 29) * 0x9e3779b97f4a7c15ull >> 32);
  }
};

static Key *keys;                          // open addressing; a key's place holds its instruction's number
static uint32_t *key_numbers;
static size_t key_room;

static uint64_t call_path(const Thread *thread) {
  uint64_t path = 0;
  const unsigned depth = thread->depth < MAX_CALLS ? thread->depth : MAX_CALLS;
  for (unsigned i = 0; i < depth; i++) path = (path ^ uint64_t(thread->calls[i])) * 0x100000001b3ull;
  return path;
}

static size_t find_slot(const Key &key) {
  size_t slot = key.hash() & (key_room - 1);
  while (keys[slot].pc && !(keys[slot] == key)) slot = (slot + 1) & (key_room - 1);
  return slot;
}

static void grow_keys() {
  Key *old = keys;
  uint32_t *old_numbers = key_numbers;
  const size_t old_room = key_room;
  key_room = key_room ? 2 * key_room : 256;
  keys = static_cast<Key *>(calloc(key_room, sizeof(Key)));
  key_numbers = static_cast<uint32_t *>(calloc(key_room, sizeof(uint32_t)));
  for (size_t i = 0; i < old_room; i++) {
    if (!old[i].pc) continue;
    const size_t slot = find_slot(old[i]);
    keys[slot] = old[i];
    key_numbers[slot] = old_numbers[i];
  }
  free(old);
  free(old_numbers);
}

static uint32_t new_instruction(Space space, int region, const SharedRecord *variable, size_t bytes, Access access, void *pc) {
  if (instruction_count == instruction_room) {
    instruction_room = instruction_room ? 2 * instruction_room : 64;
    instructions = static_cast<Instruction *>(realloc((void *)instructions, instruction_room * sizeof(Instruction)));
  }
  Instruction &instruction = instructions[instruction_count];
  memset((void *)&instruction, 0, sizeof instruction);
  set_place(instruction.place, context.self, Site{nullptr, 0, pc});
  instruction.space = space;
  instruction.access = access;
  instruction.region = region;
  instruction.bytes = uint32_t(bytes);
  if (variable) strncpy(instruction.name, variable->name, sizeof instruction.name - 1);
  return instruction_count++;
}

static uint32_t instruction_of(Space space, int region, const SharedRecord *variable, size_t bytes, Access access, void *pc) {
  if (2 * instruction_count >= key_room) grow_keys();
  const void *target = variable ? (const void *)variable : (const void *)&shadows[region];
  const Key key{pc, call_path(context.self), target, uint32_t(bytes), access};
  const size_t slot = find_slot(key);
  if (!keys[slot].pc) {
    keys[slot] = key;
    key_numbers[slot] = new_instruction(space, region, variable, bytes, access, pc);
  }
  return key_numbers[slot];
}

static void add_event(uint32_t instruction, char *address) {
  Events &events = thread_events[context.self->linear];
  if (events.count == events.room) {
    if (events.room >= MAX_EVENTS) {
      begin_fault(FaultKind::too_many_accesses, context.self, Site{nullptr, 0, last_pc});
      give_up();
    }
    events.room = events.room ? 2 * events.room : 64;
    events.events = static_cast<Event *>(realloc((void *)events.events, events.room * sizeof(Event)));
  }
  events.events[events.count++] = {address, instruction, 0, context.self->lane};
}

// The widest access of one instruction: 16 bytes, and a power of two that divides what is copied.
static size_t instruction_width(size_t bytes) {
  const size_t power = bytes & -bytes;
  return power < 16 ? power : 16;
}

static void record_access(Space space, int region, char *address, size_t bytes, Access access, void *pc) {
  const SharedRecord *variable = space == Space::shared ? shared_variable_at(address) : nullptr;
  const size_t width = instruction_width(bytes);
  const uint32_t instruction = instruction_of(space, region, variable, width, access, pc);
  for (size_t done = 0; done < bytes; done += width) add_event(instruction, address + done);
}

// ---- what a request costs

struct Span {
  uint64_t begin, end;
};

static int by_begin(const void *a, const void *b) {
  const uint64_t x = static_cast<const Span *>(a)->begin, y = static_cast<const Span *>(b)->begin;
  return x < y ? -1 : x > y;
}

static void count_sectors(Span *spans, unsigned n, uint64_t &distinct_bytes, uint32_t &sectors) {
  qsort(spans, n, sizeof(Span), by_begin);
  distinct_bytes = sectors = 0;
  uint64_t covered = 0, next_sector = 0;
  for (unsigned i = 0; i < n; i++) {
    const uint64_t begin = spans[i].begin > covered ? spans[i].begin : covered;
    if (spans[i].end > begin) distinct_bytes += spans[i].end - begin;
    if (spans[i].end > covered) covered = spans[i].end;
    const uint64_t first = spans[i].begin / SECTOR > next_sector ? spans[i].begin / SECTOR : next_sector;
    const uint64_t last = (spans[i].end - 1) / SECTOR;
    if (last + 1 > first) {
      sectors += uint32_t(last + 1 - first);
      next_sector = last + 1;
    }
  }
}

// Passes through shared memory, and the fewest that the same lanes could need.
struct Passes {
  uint32_t wavefronts, ideal;
};

// One word of each bank a wavefront: the bank of which most different words are wanted decides.
static Passes passes_of(const Span *by_lane, unsigned mask, unsigned first, unsigned end) {
  uint64_t words[BANKS][WARP * 4];
  unsigned wanted[BANKS] = {}, most = 0;
  for (unsigned lane = first; lane < end; lane++) {
    if (!(mask >> lane & 1)) continue;
    for (uint64_t word = by_lane[lane].begin / 4; word <= (by_lane[lane].end - 1) / 4; word++) {
      const unsigned bank = word % BANKS;
      unsigned i = 0;
      while (i < wanted[bank] && words[bank][i] != word) i++;
      if (i == wanted[bank]) words[bank][wanted[bank]++] = word;
      if (wanted[bank] > most) most = wanted[bank];
    }
  }
  return {most, most > 0};
}

// Do all lanes want what the lane `apart` from them wants, or that lane nothing?
static bool alike(const Span *by_lane, unsigned mask, unsigned apart) {
  for (unsigned lane = 0; lane < WARP; lane++) {
    const bool both = mask >> lane & 1 && mask >> (lane ^ apart) & 1;
    if (both && by_lane[lane].begin != by_lane[lane ^ apart].begin) return false;
  }
  return true;
}

// Accesses of up to 4 bytes take the warp at once, of 8 bytes half the lanes after the other, of 16 bytes a quarter
// after the other. A load whose neighbouring lanes all want the same takes twice as many lanes at once.
static Passes count_passes(const Span *by_lane, unsigned mask, uint32_t bytes, bool load) {
  unsigned at_once = bytes <= 4 ? WARP : bytes == 8 ? WARP / 2 : WARP / 4;
  if (at_once < WARP && load && (alike(by_lane, mask, 1) || alike(by_lane, mask, 2))) at_once *= 2;
  Passes total = {0, 0};
  for (unsigned first = 0; first < WARP; first += at_once) {
    const Passes passes = passes_of(by_lane, mask, first, first + at_once);
    total.wavefronts += passes.wavefronts;
    total.ideal += passes.ideal;
  }
  return total;
}

static const char *array_begin(const Instruction &instruction, const char *address) {
  return instruction.space == Space::global ? shadows[instruction.region].begin : shared_variable_at(address)->begin;
}

static void count_request(const Event *events, unsigned n, unsigned warp) {
  Instruction &instruction = instructions[events[0].instruction];
  Request request = {};
  put(request.block, context.block_index);
  request.warp = warp;
  Span spans[WARP], by_lane[WARP];
  const char *begin = array_begin(instruction, events[0].address);
  for (unsigned i = 0; i < n; i++) {
    const uint64_t address = uint64_t(events[i].address);
    spans[i] = by_lane[events[i].lane] = {address, address + instruction.bytes};
    request.lanes |= 1u << events[i].lane;
    request.offsets[events[i].lane] = events[i].address - begin;
  }
  uint64_t distinct_bytes;
  count_sectors(spans, n, distinct_bytes, request.sectors);
  if (instruction.space == Space::shared) {
    const Passes passes = count_passes(by_lane, request.lanes, instruction.bytes, instruction.access == Access::read);
    request.wavefronts = passes.wavefronts;
    instruction.wavefronts += passes.wavefronts;
    instruction.ideal_wavefronts += passes.ideal;
  } else {
    instruction.sectors += request.sectors;
    instruction.ideal_sectors += (distinct_bytes + SECTOR - 1) / SECTOR;
  }
  instruction.lanes += n;
  instruction.distinct_bytes += distinct_bytes;
  if (!instruction.requests++) instruction.first = instruction.worst = request;
  const bool worse = instruction.space == Space::global ? request.sectors > instruction.worst.sectors
                                                        : request.wavefronts > instruction.worst.wavefronts;
  if (worse) instruction.worst = request;
}

// ---- from the lanes' accesses to requests: the k-th time that lanes come to an instruction is one request

static int by_request(const void *a, const void *b) {
  const Event &x = *static_cast<const Event *>(a), &y = *static_cast<const Event *>(b);
  if (x.instruction != y.instruction) return x.instruction < y.instruction ? -1 : 1;
  if (x.occurrence != y.occurrence) return x.occurrence < y.occurrence ? -1 : 1;
  return x.lane < y.lane ? -1 : x.lane > y.lane;
}

static bool lanes_agree(unsigned first, unsigned end) {
  const Events &one = thread_events[first];
  for (unsigned t = first + 1; t < end; t++) {
    const Events &other = thread_events[t];
    if (other.count != one.count) return false;
    for (size_t i = 0; i < one.count; i++)
      if (other.events[i].instruction != one.events[i].instruction) return false;
  }
  return true;
}

static void count_in_step(unsigned warp, unsigned first, unsigned end) {
  Event together[WARP];
  for (size_t i = 0; i < thread_events[first].count; i++) {
    for (unsigned t = first; t < end; t++) together[t - first] = thread_events[t].events[i];
    count_request(together, end - first, warp);
  }
}

static void count_sorted(unsigned warp, unsigned first, unsigned end) {
  size_t total = 0;
  for (unsigned t = first; t < end; t++) total += thread_events[t].count;
  Event *all = static_cast<Event *>(malloc((total + 1) * sizeof(Event)));
  uint32_t *times = static_cast<uint32_t *>(malloc((instruction_count + 1) * sizeof(uint32_t)));
  size_t n = 0;
  for (unsigned t = first; t < end; t++) {
    memset(times, 0, (instruction_count + 1) * sizeof(uint32_t));
    for (size_t i = 0; i < thread_events[t].count; i++) {
      all[n] = thread_events[t].events[i];
      all[n].occurrence = times[all[n].instruction]++;
      n++;
    }
  }
  qsort((void *)all, n, sizeof(Event), by_request);
  for (size_t i = 0; i < n;) {
    size_t j = i + 1;
    while (j < n && all[j].instruction == all[i].instruction && all[j].occurrence == all[i].occurrence) j++;
    count_request(all + i, unsigned(j - i), warp);
    i = j;
  }
  free((void *)all);
  free(times);
}

static void count_warp(unsigned warp) {
  const unsigned first = warp * WARP, end = first + WARP < context.threads ? first + WARP : context.threads;
  if (lanes_agree(first, end)) count_in_step(warp, first, end);
  else count_sorted(warp, first, end);
  for (unsigned t = first; t < end; t++) thread_events[t].count = 0;
}

static void count_block() {
  for (unsigned w = 0; w < warp_count; w++) count_warp(w);
}

// A meeting of all lanes that are left: what they do after it is another request than what they did before.
static void warp_met(unsigned warp, unsigned mask) {
  meetings_counted++;
  if (mask == (warps[warp].lanes & ~warps[warp].returned)) count_warp(warp);
}

static void profile_begins() {
  instruction_count = 0;
  if (key_room) memset((void *)keys, 0, key_room * sizeof(Key));
  barriers_counted = meetings_counted = 0;
  for (Events &events : thread_events) events.count = 0;
}

static void profile_ends() {
  for (int i = 0; i < shadow_count; i++) {
    RegionTraffic &traffic = region_traffic[i] = {};
    for (size_t c = 0; c < shadows[i].bytes / shadows[i].granule; c++) {
      if (shadows[i].cells[c].read.block) traffic.bytes_read += shadows[i].granule;
      if (shadows[i].cells[c].write.block) traffic.bytes_written += shadows[i].granule;
    }
  }
}

}  // namespace emulated

// What a launch counted, until the next launch. Mirrored in native.py.
struct EmulatedProfile {
  const emulated::Instruction *instructions;
  const emulated::RegionTraffic *regions;
  uint64_t instruction_count, region_count, barriers, meetings;
};

EMULATED_EXPORT void emulated_profile(EmulatedProfile *profile) {
  using namespace emulated;
  *profile = {instructions, region_traffic, instruction_count, uint64_t(shadow_count), barriers_counted, meetings_counted};
}
