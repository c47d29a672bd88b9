// A stack for each thread of a block, and the switch from one stack to another.
#pragma once
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <stdio.h>
#include <time.h>
#include <ucontext.h>

#include "emulated/barriers.h"
#include "emulated/cp_async.h"
#include "emulated/fragments.h"
#include "emulated/ldmatrix.h"
#include "emulated/memory.h"
#include "emulated/shared.h"
#include "emulated/thread.h"
#include "emulated/warp.h"

// Saves what a call must preserve, stores the stack pointer in *save, and continues on the stack `to`.
extern "C" void emulated_switch(void **save, void *to) __asm__("emulated_switch");

#if defined(__x86_64__)
__asm__(
    ".text\n.p2align 4\n.globl emulated_switch\n.hidden emulated_switch\nemulated_switch:\n"
    " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n.p2align 4\n.globl emulated_switch\n.hidden emulated_switch\nemulated_switch:\n"
    " sub sp, sp, #160\n"
    " stp x19, x20, [sp]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n stp x25, x26, [sp, #48]\n"
    " stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n"
    " stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n"
    " mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
    " ldp x19, x20, [sp]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n ldp x25, x26, [sp, #48]\n"
    " ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n"
    " ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n"
    " add sp, sp, #160\n ret\n");
#else
#error "the emulator switches stacks on x86-64 and aarch64 only"
#endif

namespace emulated {

constexpr size_t STACK_BYTES = 256 << 10;
constexpr size_t GUARD_BYTES = 16 << 10;   // at the low end: an overflow faults instead of reaching a neighbour

struct Stacks {
  char *base = nullptr;
  void *unused[MAX_THREADS];
  unsigned count = 0;

  void reset() {
    count = 0;
    for (unsigned i = MAX_THREADS; i-- > 0;) unused[count++] = base + i * STACK_BYTES;
  }
  void *take() { return unused[--count]; }
  void give_back(void *stack) { unused[count++] = stack; }   // the warmest stack is taken first
  bool holds(const void *address) const { return size_t((const char *)address - base) < MAX_THREADS * STACK_BYTES; }
};

static Stacks stacks;

// One set of stacks serves every module of the process; null on failure.
static void *reserve_stacks() {
  void *base = mmap(nullptr, MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  for (unsigned i = 0; i < MAX_THREADS; i++) mprotect((char *)base + i * STACK_BYTES, GUARD_BYTES, PROT_NONE);
  return base;
}

// A stack on which the switch "returns" into `function`.
static void *prepared_stack(void *stack, void (*function)()) {
  // Stacks lie a power of two apart. Starting them at different depths keeps their warm ends in different cache sets.
  const size_t number = ((char *)stack - stacks.base) / STACK_BYTES;
  void **top = (void **)((char *)stack + STACK_BYTES - number * 832 % (16 << 10) / 64 * 64);
#if defined(__x86_64__)
  *--top = nullptr;              // keeps the alignment that a call has
  *--top = (void *)function;
  for (int i = 0; i < 6; i++) *--top = nullptr;
#else
  top -= 20;
  memset(top, 0, 160);
  top[11] = (void *)function;    // x30, the link register
#endif
  return top;
}

}  // namespace emulated
