// SPDX-License-Identifier: Apache-2.0
#include "swap/slots.h"

#include <utility>

#include "headrace/error.h"

namespace headrace {

SlotPool::SlotPool(Device& device, WaitClock& clock, std::byte* memory, size_t slots, size_t slot_bytes)
    : clock_(clock), memory_(memory), slot_bytes_(slot_bytes), slots_(slots) {
  for (size_t i = 0; i < slots; ++i) {
    slots_[i].copied = device.make_event();
    slots_[i].data = data(i);
  }
}

SlotPool::~SlotPool() {
  while (oldest_given_back()) {
    try {
      drain();
    } catch (const std::exception&) {
      // A slot that failed is free now; the others still have to land before the memory goes.
    }
  }
}

bool SlotPool::try_acquire(size_t& slot) {
  pump();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state != State::free) continue;
    slots_[i].state = State::held;
    slot = i;
    return true;
  }
  return false;
}

size_t SlotPool::acquire() {
  size_t slot = 0;
  while (!try_acquire(slot)) {
    Slot* oldest = oldest_given_back();
    HEADRACE_CHECK(oldest, "every slot is held by the caller itself");
    advance(*oldest, true);
  }
  return slot;
}

SlotPool::Slot& SlotPool::give_back(size_t slot, Stream& stream, State state) {
  Slot& s = slots_[slot];
  HEADRACE_CHECK(s.state == State::held, "only a slot in hand is given back");
  stream.record(*s.copied);
  s.state = state;
  s.ticket = ++next_ticket_;
  return s;
}

void SlotPool::give_back_after(size_t slot, Stream& stream) {
  give_back(slot, stream, State::copying);
}

void SlotPool::write_back_after(size_t slot, Stream& stream, const Place& to, uint64_t offset, size_t bytes) {
  HEADRACE_CHECK(bytes <= slot_bytes_, "more bytes than a slot has");
  Slot& s = give_back(slot, stream, State::copying_out);
  s.store = to.store;
  s.extent = to.extent;
  s.offset = offset;
  s.bytes = bytes;
}

SlotPool::Slot* SlotPool::oldest_given_back() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.state == State::free || slot.state == State::held) continue;
    if (!oldest || slot.ticket < oldest->ticket) oldest = &slot;
  }
  return oldest;
}

/// The slot's next steps; with `block`, until it is free. A slot whose transfer fails becomes free, then
/// throws.
void SlotPool::advance(Slot& slot, bool block) {
  if (slot.state == State::copying || slot.state == State::copying_out) {
    if (!block && !slot.copied->reached()) return;
    const State before = std::exchange(slot.state, State::free);
    clock_.book(WaitCause::copy, [&] { slot.copied->synchronize(); });
    if (before == State::copying) return;
    slot.write = slot.store->write(slot.extent, slot.offset, {slot.data, slot.bytes});
    slot.state = State::writing;
  }
  if (slot.state == State::writing) {
    if (!block && !slot.store->done(slot.write)) return;
    slot.state = State::free;
    clock_.book(WaitCause::nvme, [&] { slot.store->wait(std::exchange(slot.write, {})); });
  }
}

void SlotPool::pump() {
  for (Slot& slot : slots_) {
    if (slot.state != State::free && slot.state != State::held) advance(slot, false);
  }
}

void SlotPool::drain() {
  while (Slot* oldest = oldest_given_back()) advance(*oldest, true);
}

}  // namespace headrace
