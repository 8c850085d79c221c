// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/executor.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace headrace::emulation {
namespace {

Executor* g_running = nullptr;  ///< set while a kernel runs, under the executor's mutex

constexpr uint32_t lane_mask(unsigned lanes) {
  return lanes == kLanes ? ~0u : (1u << lanes) - 1u;
}

bool same_place(const Meeting& meeting, const char* what, const Site& at) {
  if (meeting.at.line() != at.line() || meeting.at.column() != at.column()) return false;
  return (meeting.what == what || std::strcmp(meeting.what, what) == 0) &&
         (meeting.at.file_name() == at.file_name() ||
          std::strcmp(meeting.at.file_name(), at.file_name()) == 0);
}

}  // namespace

Executor& Executor::instance() {
  static Executor* const executor = new Executor;  // never destroyed: streams may end later than statics
  return *executor;
}

Executor& Executor::running() {
  if (!g_running) std::abort();  // a thread word was used outside a kernel
  return *g_running;
}

std::string Executor::run(const Launch& launch, const std::function<void()>& thread) {
  const std::lock_guard lock(mutex_);
  begin(launch, thread);
  g_running = this;
  for (unsigned z = 0; z < launch.grid.z && fault_.empty(); ++z)
    for (unsigned y = 0; y < launch.grid.y && fault_.empty(); ++y)
      for (unsigned x = 0; x < launch.grid.x && fault_.empty(); ++x) run_block({x, y, z});
  g_running = nullptr;
  return std::exchange(fault_, {});
}

void Executor::begin(const Launch& launch, const std::function<void()>& thread) {
  launch_ = &launch;
  body_ = &thread;
  main_.adopt_calling_thread();
  gridDim = launch.grid;
  blockDim = launch.block;
  count_ = launch.block.x * launch.block.y * launch.block.z;
  for (unsigned t = 0; t < count_; ++t) {
    const unsigned row = t / launch.block.x;
    threads_[t].index = {t % launch.block.x, row % launch.block.y, row / launch.block.y};
  }
  for (unsigned w = 0; w < warps_.size(); ++w) {
    const unsigned before = w * kLanes;
    warps_[w].lanes = before >= count_ ? 0 : std::min(kLanes, count_ - before);
  }
  shared_.resize(launch.shared_bytes);
}

void Executor::run_block(uint3 index) {
  blockIdx = index;
  downwards_ = ((index.x + index.y + index.z) & 1u) != 0;
  shared_.fill();
  exited_ = barrier_.arrived = 0;
  const unsigned warps = (count_ + kLanes - 1) / kLanes;
  for (unsigned w = 0; w < warps; ++w) {
    Warp& warp = warps_[w];
    warp.ready = lane_mask(warp.lanes);
    warp.exited = warp.meeting.arrived = 0;
  }
  ready_warps_ = lane_mask(warps);
  current_ = downwards_ ? count_ - 1 : 0;
  pick_next();
  threads_[current_].fiber = idle_fiber();
  switch_fiber(main_, *threads_[current_].fiber);

  if (!fault_.empty()) {
    idle_.clear();
    for (const auto& fiber : fibers_) {
      fiber->restart();
      idle_.push_back(fiber.get());
    }
    for (Thread& thread : threads_) thread.fiber = nullptr;
  } else if (const auto stray = shared_.stray_write()) {
    describe("a thread wrote outside the block's shared memory, at byte " + std::to_string(*stray));
  }
}

void Executor::fiber_main() {
  Executor& self = instance();
  for (;;) {
    self.copies().clear();
    (*self.body_)();
    self.finish_thread();
    Fiber* const mine = std::exchange(self.threads_[self.current_].fiber, nullptr);
    if (!self.pick_next()) {
      self.idle_.push_back(mine);
      switch_fiber(*mine, self.main_);
      continue;
    }
    Thread& next = self.threads_[self.current_];
    if (!next.fiber) {
      next.fiber = mine;
    } else {
      self.idle_.push_back(mine);
      switch_fiber(*mine, *next.fiber);
    }
  }
}

void Executor::finish_thread() {
  Warp& warp = warps_[current_ / kLanes];
  const Meeting* const left = barrier_.arrived > 0       ? &barrier_
                              : warp.meeting.arrived > 0 ? &warp.meeting
                                                         : nullptr;
  if (left) {
    describe_split(*left, thread_text(current_) + " has ended");
    abandon();
  }
  ++exited_;
  ++warp.exited;
}

/// Makes a ready thread the current one, of the same warp while there is one.
bool Executor::pick_next() {
  const auto first = [this](uint32_t bits) {
    return unsigned(downwards_ ? 31 - std::countl_zero(bits) : std::countr_zero(bits));
  };
  unsigned w = current_ / kLanes;
  if (warps_[w].ready == 0) {
    if (ready_warps_ == 0) return false;
    w = first(ready_warps_);
  }
  Warp& warp = warps_[w];
  const unsigned lane = first(warp.ready);
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << w);
  current_ = w * kLanes + lane;
  threadIdx = threads_[current_].index;
  return true;
}

Fiber* Executor::idle_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(&Executor::fiber_main));
    return fibers_.back().get();
  }
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void Executor::suspend() {
  Fiber& mine = *threads_[current_].fiber;
  if (!pick_next()) stuck();
  Thread& next = threads_[current_];
  if (!next.fiber) next.fiber = idle_fiber();
  switch_fiber(mine, *next.fiber);
}

void Executor::join(Meeting& meeting, const char* what, Site at) {
  if (meeting.arrived == 0) {
    meeting.what = what;
    meeting.at = at;
    meeting.first_thread = current_;
  } else if (!same_place(meeting, what, at)) {
    describe_split(meeting, meeting_text(current_, what, at));
    abandon();
  }
  ++meeting.arrived;
}

void Executor::release(Warp& warp) {
  warp.meeting.arrived = 0;
  warp.parity ^= 1u;
  warp.ready = ~(1u << lane());
  ready_warps_ |= 1u << (current_ / kLanes);
}

void Executor::block_barrier(const char* what, Site at) {
  if (exited_ > 0) {
    describe_left_alone(what, at);
    abandon();
  }
  join(barrier_, what, at);
  if (barrier_.arrived < count_) return suspend();
  barrier_.arrived = 0;
  const unsigned warps = (count_ + kLanes - 1) / kLanes;
  for (unsigned w = 0; w < warps; ++w) warps_[w].ready = lane_mask(warps_[w].lanes);
  ready_warps_ = lane_mask(warps);
  Warp& own = warps_[current_ / kLanes];
  own.ready &= ~(1u << lane());
  if (own.ready == 0) ready_warps_ &= ~(1u << (current_ / kLanes));
}

}  // namespace headrace::emulation
