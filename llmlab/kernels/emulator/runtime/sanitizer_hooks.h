// The functions that code compiled with -fsanitize=thread, bounds, integer-divide-by-zero, alignment calls. No sanitizer's library
// is linked: these are all there is.
#pragma once
#include "checker.h"

namespace emulated {

// What the compiler passes to the handlers of -fsanitize=bounds.
struct SourceLocation { const char *file; uint32_t line, column; };
struct TypeDescriptor { uint16_t kind, info; char name[1]; };
struct IndexCheck { SourceLocation location; TypeDescriptor *array_type, *index_type; };
struct DivisionCheck { SourceLocation location; TypeDescriptor *type; };
struct AlignmentCheck { SourceLocation location; TypeDescriptor *type; unsigned char log_alignment, kind; };

// The 16 in 'float [16]'.
static uint64_t extent_in(const char *type_name) {
  const char *bracket = strchr(type_name, '[');
  return bracket ? strtoull(bracket + 1, nullptr, 10) : 0;
}

static int64_t index_value(const TypeDescriptor *type, uintptr_t value) {
  const unsigned bits = 1u << (type->info >> 1);
  const bool is_signed = type->info & 1;
  return is_signed && bits == 32 ? int64_t(int32_t(value)) : int64_t(value);
}

static void locate(const SourceLocation &location, void *pc, FaultKind kind) {
  begin_fault(kind, context.self, Site{location.file, int(location.line), pc});
  fault.place.column = int(location.column);
}

}  // namespace emulated

#pragma GCC visibility push(hidden)
extern "C" {

#define EMULATED_HOOK(name, bytes, access, alignment) \
  void name(void *p) { emulated::watch(p, bytes, emulated::Access::access, __builtin_return_address(0), alignment); }
#define EMULATED_HOOKS(bytes)                                  \
  EMULATED_HOOK(__tsan_read##bytes, bytes, read, bytes)         \
  EMULATED_HOOK(__tsan_write##bytes, bytes, write, bytes)       \
  EMULATED_HOOK(__tsan_unaligned_read##bytes, bytes, read, 1) \
  EMULATED_HOOK(__tsan_unaligned_write##bytes, bytes, write, 1) \
  EMULATED_HOOK(__tsan_volatile_read##bytes, bytes, read, bytes)  \
  EMULATED_HOOK(__tsan_volatile_write##bytes, bytes, write, bytes)
EMULATED_HOOKS(1)
EMULATED_HOOKS(2)
EMULATED_HOOKS(4)
EMULATED_HOOKS(8)
EMULATED_HOOKS(16)

void __tsan_read_range(void *p, size_t bytes) {
  emulated::watch(p, bytes, emulated::Access::read, __builtin_return_address(0), 1);
}
void __tsan_write_range(void *p, size_t bytes) {
  emulated::watch(p, bytes, emulated::Access::write, __builtin_return_address(0), 1);
}
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
  void *pc = __builtin_return_address(0);
  emulated::watch(from, bytes, emulated::Access::read, pc, 1);
  emulated::watch(to, bytes, emulated::Access::write, pc, 1);
  return memmove(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes) { return __tsan_memcpy(to, from, bytes); }
void *__tsan_memset(void *to, int value, size_t bytes) {
  emulated::watch(to, bytes, emulated::Access::write, __builtin_return_address(0), 1);
  return memset(to, value, bytes);
}

void __tsan_init() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}

void __tsan_func_entry(void *caller) {
  emulated::Thread *self = emulated::context.self;
  if (!self) return;
  if (self->depth < emulated::MAX_CALLS) self->calls[self->depth] = caller;
  self->depth++;
}
void __tsan_func_exit() {
  if (emulated::context.self) emulated::context.self->depth--;
}

void __ubsan_handle_out_of_bounds(emulated::IndexCheck *check, uintptr_t index) {
  using namespace emulated;
  locate(check->location, __builtin_return_address(0), FaultKind::array_bounds);
  fault.offset = index_value(check->index_type, index);
  fault.extent = extent_in(check->array_type->name);
  give_up();
}
void __ubsan_handle_divrem_overflow(emulated::DivisionCheck *check, uintptr_t, uintptr_t) {
  emulated::locate(check->location, __builtin_return_address(0), emulated::FaultKind::division_by_zero);
  emulated::give_up();
}
// clang copies a vector as bytes, so that only this check knows its alignment.
void __ubsan_handle_type_mismatch_v1(emulated::AlignmentCheck *check, void *address) {
  emulated::check_alignment(address, size_t(1) << check->log_alignment, check->kind == 1, __builtin_return_address(0));
}

}
#pragma GCC visibility pop
