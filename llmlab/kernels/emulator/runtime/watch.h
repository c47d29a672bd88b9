// What the scheduler tells the checker. In fast mode nobody listens.
#pragma once
#include "fault.h"

namespace emulated {

#if defined(EMULATED_WATCHED)
static void block_begins();
static void block_synchronised();
static void warp_meets(unsigned warp, unsigned mask, bool orders_memory);
static void fenced(bool whole_grid);
static void block_ends();
#else
static void block_begins() {}
static void block_synchronised() {}
static void warp_meets(unsigned, unsigned, bool) {}
static void fenced(bool) {}
static void block_ends() {}
#endif

}  // namespace emulated
