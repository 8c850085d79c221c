// SPDX-License-Identifier: Apache-2.0
// Runs a kernel: blocks one after another, a block's threads as fibers that take turns where they meet. A
// thread that never waits needs no fiber of its own, so kernels without barriers run as a plain loop.
// One kernel runs at a time; called by the streams' threads. Even blocks run their threads upwards, odd ones
// downwards, so that a missing barrier shows in one of the two.
//
// A fault ends the launch where it stands: fibers are abandoned, nothing is unwound.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/emulation/async_copies.h"
#include "tests/emulation/device_words.h"
#include "tests/emulation/fiber.h"
#include "tests/emulation/launch.h"
#include "tests/emulation/shared_area.h"
#include "tests/emulation/warp.h"

namespace headrace::emulation {

constexpr unsigned kLanes = 32;

/// What one lane brings to a meeting of its warp, and takes from it.
struct alignas(64) LaneWords {
  std::array<uint64_t, kWordsPerLane> words;
};
using WarpSlots = std::array<LaneWords, kLanes>;

/// A place where threads wait for one another, as the first to come has named it.
struct Meeting {
  const char* what = "";
  Site at;
  unsigned first_thread = 0;
  unsigned arrived = 0;
};

struct Warp {
  Meeting meeting;
  uint32_t ready = 0;  ///< lanes that may go on
  unsigned lanes = 0;
  unsigned exited = 0;
  /// Lanes may still read the words of one meeting while others bring those of the next.
  unsigned parity = 0;
  std::array<WarpSlots, 2> slots;
};

struct Thread {
  uint3 index;
  Fiber* fiber = nullptr;  ///< where it runs or was suspended; none: it has not begun, or has ended
  AsyncCopies copies;
};

class Executor {
 public:
  static Executor& instance();
  /// The one that runs the calling kernel. Outside a kernel there is none: a programmer's mistake, aborts.
  static Executor& running();

  /// Blocks until done. Empty, or the fault in one line.
  std::string run(const Launch& launch, const std::function<void()>& thread);

  // On a kernel's threads.

  void block_barrier(const char* what, Site at);

  /// All 32 lanes bring words; the last one to come calls `combine(slots)` for all. The slots stay as they
  /// are until the warp's next meeting but one.
  template <size_t kCount, class Combine>
  WarpSlots& meet(const char* what, unsigned mask, Site at, const std::array<uint64_t, kCount>& mine,
                  Combine&& combine) {
    static_assert(kCount <= kWordsPerLane);
    Warp& warp = warps_[current_ / kLanes];
    if (mask != ~0u || warp.lanes != kLanes || warp.exited != 0) incomplete_warp(warp, what, mask, at);
    join(warp.meeting, what, at);
    WarpSlots& slots = warp.slots[warp.parity];
    for (size_t i = 0; i < kCount; ++i) slots[lane()].words[i] = mine[i];
    if (warp.meeting.arrived < kLanes) {
      suspend();
    } else {
      combine(slots);
      release(warp);
    }
    return slots;
  }

  [[nodiscard]] unsigned lane() const { return current_ % kLanes; }
  [[nodiscard]] const SharedArea& shared() const { return shared_; }
  [[nodiscard]] AsyncCopies& copies() { return threads_[current_].copies; }
  /// Ends the launch with `what`, the place and the running thread as the message.
  [[noreturn]] void fault(const char* what, Site at);

 private:
  Executor() = default;
  static void fiber_main();
  void begin(const Launch& launch, const std::function<void()>& thread);
  void run_block(uint3 index);
  void finish_thread();
  bool pick_next();
  void suspend();
  Fiber* idle_fiber();
  void release(Warp& warp);
  void join(Meeting& meeting, const char* what, Site at);

  // What went wrong becomes fault_ first, then the kernel is left: a fiber that is abandoned owns nothing.
  [[noreturn]] void abandon();
  [[noreturn]] void incomplete_warp(const Warp& warp, const char* what, unsigned mask, Site at);
  [[noreturn]] void stuck();
  void describe(const std::string& problem);
  void describe_split(const Meeting& meeting, const std::string& other);
  void describe_left_alone(const char* what, Site at);
  [[nodiscard]] std::string thread_text(unsigned thread) const;
  [[nodiscard]] std::string meeting_text(unsigned thread, const char* what, const Site& at) const;

  std::mutex mutex_;  ///< one kernel at a time
  const Launch* launch_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  SharedArea shared_;
  std::vector<Thread> threads_{kMostThreads};
  std::vector<Warp> warps_{kMostThreads / kLanes};
  unsigned count_ = 0;        ///< threads of a block
  unsigned current_ = 0;      ///< the running thread
  unsigned exited_ = 0;       ///< threads of the block that are done
  uint32_t ready_warps_ = 0;  ///< warps with ready lanes
  bool downwards_ = false;
  Meeting barrier_;
  std::string fault_;

  Fiber main_;  ///< the stream's own thread
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

}  // namespace headrace::emulation
