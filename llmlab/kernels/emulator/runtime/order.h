// Which of two accesses is sure to come first: the order that barriers, fences and atomics make between threads.
#pragma once
#include "scheduler.h"

namespace emulated {

// An access as its memory remembers it.
struct Mark {
  uint32_t block;      // serial number; 0: never
  uint32_t barrier;    // how many barriers its block had passed
  uint32_t time;       // how many __syncwarp its warp had made
  uint16_t thread;
  bool atomic;
  bool many_warps;     // (reads) several warps did since the last barrier
  uint32_t pc;         // from the start of the image
};

static uint32_t barriers_before;                     // of this block
static uint32_t warp_time[MAX_THREADS / WARP];       // __syncwarps made in this launch
static uint32_t seen[MAX_THREADS / WARP][WARP][WARP];  // [warp][lane][other]: time up to which lane knows other's past

static void lanes_synchronised(unsigned warp, unsigned mask) {
  const uint32_t time = ++warp_time[warp];
  uint32_t joined[WARP] = {};
  for (unsigned lane = 0; lane < WARP; lane++)
    if (mask >> lane & 1)
      for (unsigned other = 0; other < WARP; other++)
        if (seen[warp][lane][other] > joined[other]) joined[other] = seen[warp][lane][other];
  for (unsigned lane = 0; lane < WARP; lane++)
    if (mask >> lane & 1) joined[lane] = time;
  for (unsigned lane = 0; lane < WARP; lane++)
    if (mask >> lane & 1) memcpy(seen[warp][lane], joined, sizeof joined);
}

// ---- between blocks: what a block wrote before a fence and an atomic is known to every block that
// meets the same atomic later (the "last block done" pattern).

struct BlockSet {
  uint64_t *words = nullptr;
  size_t count = 0;
  void grow(size_t needed) {
    if (needed <= count) return;
    words = static_cast<uint64_t *>(realloc(words, needed * sizeof(uint64_t)));
    memset(words + count, 0, (needed - count) * sizeof(uint64_t));
    count = needed;
  }
  void add(uint64_t block) {
    grow(block / 64 + 1);
    words[block / 64] |= 1ull << block % 64;
  }
  void add(const BlockSet &other) {
    grow(other.count);
    for (size_t i = 0; i < other.count; i++) words[i] |= other.words[i];
  }
  bool has(uint64_t block) const { return block / 64 < count && words[block / 64] >> block % 64 & 1; }
  void clear() { if (count) memset(words, 0, count * sizeof(uint64_t)); }
};

struct Released {
  const void *address;
  BlockSet blocks;
};

static BlockSet known;                   // blocks whose writes this block may see
static Released *released;               // by the atomic's address
static size_t released_count, released_room;
static bool block_has_fenced;
static uint32_t unfenced[MAX_THREADS];   // 1 + barriers before the thread's last global write; 0: none since a fence

static Released *find_released(const void *address) {
  for (size_t i = 0; i < released_count; i++)
    if (released[i].address == address) return &released[i];
  return nullptr;
}

static void fenced(bool whole_grid) {
  if (!whole_grid) return;
  block_has_fenced = true;
  unfenced[context.self->linear] = 0;
  for (unsigned i = 0; i < context.threads; i++)   // a barrier before the fence brings the others' writes under it
    if (unfenced[i] && unfenced[i] <= barriers_before) unfenced[i] = 0;
}

static bool all_writes_fenced() {
  for (unsigned i = 0; i < context.threads; i++)
    if (unfenced[i]) return false;
  return true;
}

static void atomic_orders(const void *address) {
  Released *at = find_released(address);
  if (at) known.add(at->blocks);
  if (!block_has_fenced || !all_writes_fenced()) return;
  if (!at) {
    if (released_count == released_room) {
      released_room = released_room ? 2 * released_room : 16;
      released = static_cast<Released *>(realloc((void *)released, released_room * sizeof(Released)));
    }
    at = &released[released_count++];
    *at = Released{address, BlockSet()};
  }
  at->blocks.add(known);
  at->blocks.add(context.block_serial);
}

static void forget_order() {
  for (size_t i = 0; i < released_count; i++) free(released[i].blocks.words);
  released_count = 0;
  memset(warp_time, 0, sizeof warp_time);
  memset(seen, 0, sizeof seen);
}

static void order_begins() {
  barriers_before = 0;
  block_has_fenced = false;
  known.clear();
  memset(unfenced, 0, context.threads * sizeof *unfenced);
}

// Is the access sure to come before what the running thread does now?
static bool comes_before(const Mark &mark) {
  const Thread *self = context.self;
  if (mark.block != context.block_serial) return known.has(mark.block);
  if (mark.barrier < barriers_before || mark.thread == self->linear) return true;
  if (mark.many_warps || mark.thread / WARP != self->warp) return false;
  return seen[self->warp][self->lane][mark.thread % WARP] > mark.time;
}

}  // namespace emulated
