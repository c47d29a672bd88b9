// Which thread runs, and what the emulator knows about every thread of the block.
#pragma once
#include "vectors.h"

namespace emulated {

constexpr unsigned WARP = 32;
constexpr unsigned MAX_THREADS = 1024;
constexpr unsigned MAX_CALLS = 32;

// A place in the kernel: what the compiler says of it (file, line) and the address of the instruction.
struct Site {
  const char *file = nullptr;
  int line = 0;
  void *pc = nullptr;
};

enum class State : int { ready, at_barrier, in_collective, converging, returned };

struct Thread {
  uint3 index;               // threadIdx
  unsigned linear;           // x fastest, as warps are cut
  unsigned lane, warp;
  State state;
  bool yielded;              // let the others run first
  void *stack_pointer;       // where to continue; null: not started
  void *stack;               // the stack it runs on
  const char *waits_for;     // "__syncthreads", "__shfl_sync" ...
  Site site;                 // where it waits
  unsigned mask;             // lanes that a collective waits for
  void *data;                // what a collective exchanges
  int value;                 // what a barrier counts
  unsigned depth;            // of the calls below, which checked code records
  void *calls[MAX_CALLS];
};

struct Context {
  Thread *self;              // the running thread
  uint3 block_index;
  dim3 grid, block;
  unsigned threads;          // of a block
  uint64_t block_serial;     // 1 for the first block of a launch; never 0 in a kernel
  uint64_t launch_serial;
};

extern Context context;

}  // namespace emulated

#define threadIdx (::emulated::context.self->index)
#define blockIdx (::emulated::context.block_index)
#define blockDim (::emulated::context.block)
#define gridDim (::emulated::context.grid)
#define warpSize 32
