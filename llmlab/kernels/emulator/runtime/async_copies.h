// cp.async: each thread's copies wait in a queue until a wait completes them.
#pragma once
#include "waiting.h"

namespace emulated {

struct Copy {
  char *shared;
  const char *global;
  int bytes, from_global;
  unsigned group;
  Site site;
};

struct CopyQueue {
  uint64_t block;
  unsigned group;            // the group now being filled
  unsigned count, room;
  Copy *copies;
};

static CopyQueue copy_queues[MAX_THREADS];

static CopyQueue &copy_queue() {
  CopyQueue &queue = copy_queues[context.self->linear];
  const uint64_t block = context.launch_serial << 32 ^ context.block_serial;
  if (queue.block == block) return queue;
  queue.block = block;
  queue.group = queue.count = 0;
  return queue;
}

void copy_async(void *shared, const void *global, int bytes, int from_global, Site site) {
  CopyQueue &queue = copy_queue();
  site.pc = __builtin_return_address(0);
  if (from_global) touch(global, from_global, bytes, Access::read, site.pc);
  if (queue.count == queue.room) {
    queue.room = queue.room ? 2 * queue.room : 16;
    queue.copies = static_cast<Copy *>(realloc(queue.copies, queue.room * sizeof(Copy)));
  }
  queue.copies[queue.count++] = {static_cast<char *>(shared), static_cast<const char *>(global), bytes, from_global, queue.group, site};
}

void commit_copies() { copy_queue().group++; }

void wait_copies(int groups_left) {
  CopyQueue &queue = copy_queue();
  unsigned kept = 0;
  completing_copies = true;
  for (unsigned i = 0; i < queue.count; i++) {
    const Copy copy = queue.copies[i];
    const bool done = copy.group + groups_left < queue.group;
    if (!done) {
      queue.copies[kept++] = copy;
      continue;
    }
    touch(copy.shared, copy.bytes, copy.bytes, Access::write, copy.site.pc);
    memcpy(copy.shared, copy.global, copy.from_global);
    memset(copy.shared + copy.from_global, 0, copy.bytes - copy.from_global);
  }
  queue.count = kept;
  completing_copies = false;
}

}  // namespace emulated
