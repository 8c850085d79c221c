// SPDX-License-Identifier: Apache-2.0
// Pinned slots between NVMe and the device. A pool is equal pieces of the pinned arena. A slot is taken,
// filled by its user, and given back together with what must still happen before it is free again: a copy to
// the device, or a copy from the device followed by a write. Two small pools carry tensors of any size.
//
// One thread. acquire() blocks only on work that is already enqueued, so it cannot deadlock as long as its
// user does not hold every slot itself.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "headrace/nvme.h"
#include "swap/residency.h"
#include "swap/wait_clock.h"

namespace headrace {

class SlotPool {
 public:
  SlotPool(Device& device, WaitClock& clock, std::byte* memory, size_t slots, size_t slot_bytes);
  ~SlotPool();  ///< waits for what is in flight; errors are dropped

  [[nodiscard]] size_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] std::byte* data(size_t slot) const { return memory_ + slot * slot_bytes_; }

  /// A free slot; waits for the oldest given-back one when there is none. Throws what its transfer threw.
  size_t acquire();
  /// The same without waiting; false when there is none.
  bool try_acquire(size_t& slot);
  /// Free again as soon as the work enqueued on `stream` so far is done.
  void give_back_after(size_t slot, Stream& stream);
  /// Free again once the work enqueued on `stream` so far is done and the slot's first `bytes` bytes are then
  /// written to `offset` of the extent.
  void write_back_after(size_t slot, Stream& stream, const Place& to, uint64_t offset, size_t bytes);
  /// Moves on whatever can be moved on without waiting.
  void pump();
  /// Waits until every slot given back is free.
  void drain();

 private:
  enum class State : uint8_t { free, held, copying, copying_out, writing };
  struct Slot {
    State state = State::free;
    uint64_t ticket = 0;  ///< grows with every giving back
    std::byte* data = nullptr;
    std::unique_ptr<Event> copied;
    nvme::Store* store = nullptr;
    nvme::ExtentId extent{};
    uint64_t offset = 0;
    size_t bytes = 0;
    nvme::Request write;
  };
  void advance(Slot& slot, bool block);
  Slot* oldest_given_back();
  Slot& give_back(size_t slot, Stream& stream, State state);

  WaitClock& clock_;
  std::byte* memory_;
  size_t slot_bytes_;
  std::vector<Slot> slots_;
  uint64_t next_ticket_ = 0;
};

}  // namespace headrace
