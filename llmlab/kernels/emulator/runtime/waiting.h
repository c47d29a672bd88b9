// The built-ins in which a thread waits for others: barriers, collectives, votes.
#pragma once
#include "scheduler.h"

namespace emulated {

int block_barrier(Vote vote, int value, const char *name, Site site) {
  Thread *self = context.self;
  site.pc = __builtin_return_address(0);
  self->state = State::at_barrier;
  self->waits_for = name;
  self->site = site;
  self->mask = 0;
  self->value = vote == Vote::all ? !value : vote == Vote::none ? 0 : value != 0;
  waiting_at_barrier++;
  leave(self);
  const int votes = self->value;
  return vote == Vote::count ? votes : vote == Vote::any ? votes != 0 : vote == Vote::all ? votes == 0 : 0;
}

void fence(bool whole_grid) { fenced(whole_grid); }

void yield() {
  context.self->yielded = true;
  leave(context.self);
}

long long clock_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

[[noreturn]] void stop(const char *why, Site site) {
  site.pc = __builtin_return_address(0);
  begin_fault(FaultKind::stopped, context.self, site);
  strncpy(fault.detail, why, sizeof fault.detail - 1);
  give_up();
}

// Comes to the meeting of this name and mask; returns when all of its lanes have met.
static void meet(const char *name, unsigned mask, void *data, Exchange exchange, bool needs_all, Site site) {
  Thread *self = context.self;
  Warp &warp = warps[self->warp];
  self->site = site;
  self->waits_for = name;
  self->data = data;
  if (!(mask >> self->lane & 1)) {
    begin_fault(FaultKind::inactive_lane, self, site);
    set_name(name);
    fault.count = self->lane;
    fault.extent = mask;
    strcpy(fault.detail, "caller");
    give_up();
  }
  mask &= warp.lanes;
  self->mask = mask;
  unsigned which = 0;
  while (which < warp.meetings && (warp.meeting[which].mask != mask || strcmp(warp.meeting[which].name, name))) which++;
  if (which == warp.meetings) warp.meeting[warp.meetings++] = {name, mask, 0, exchange, needs_all};
  Meeting &meeting = warp.meeting[which];
  meeting.arrived |= 1u << self->lane;
  const unsigned gone = mask & warp.returned;
  if (gone && needs_all) missing_lane(self, meeting, __builtin_ctz(gone));
  if ((meeting.arrived | gone) == mask) return hold_meeting(warp, self->warp * WARP, which);
  self->state = State::in_collective;
  leave(self);
}

void collective(const char *name, unsigned mask, void *data, Exchange exchange, Site site) {
  site.pc = __builtin_return_address(0);
  meet(name, mask, data, exchange, true, site);
}

[[noreturn]] void inactive_source(const char *, unsigned lane, unsigned source, unsigned mask) {
  Thread *reader = &threads[context.self->warp * WARP + lane];
  begin_fault(FaultKind::inactive_lane, reader, reader->site);
  set_name(reader->waits_for);
  fault.count = source;
  fault.extent = mask;
  strcpy(fault.detail, "source");
  give_up();
}

void sync_warp(unsigned mask, Site site) {
  site.pc = __builtin_return_address(0);
  meet("__syncwarp", mask, nullptr, nullptr, false, site);
}

static void count_votes(void **data, unsigned mask) {
  unsigned votes = 0;
  for (unsigned lane = 0; lane < WARP; lane++)
    if (mask >> lane & 1) votes |= *static_cast<unsigned *>(data[lane]) << lane;
  for (unsigned lane = 0; lane < WARP; lane++)
    if (mask >> lane & 1) *static_cast<unsigned *>(data[lane]) = votes;
}

unsigned vote(unsigned mask, int predicate, const char *name, Site site) {
  unsigned votes = predicate != 0;
  site.pc = __builtin_return_address(0);
  meet(name, mask, &votes, count_votes, false, site);
  return votes;
}

unsigned converged_lanes(Site site) {
  Thread *self = context.self;
  site.pc = __builtin_return_address(0);
  self->site = site;
  self->waits_for = "__activemask";
  self->state = State::converging;
  leave(self);
  return self->mask;
}

}  // namespace emulated
