// SPDX-License-Identifier: Apache-2.0
#include "swap/activation_store.h"

#include <algorithm>

#include "device/range.h"
#include "headrace/error.h"

namespace headrace {

uint64_t ActivationStore::stride(uint64_t bytes, Tier tier) {
  return round_up(bytes, tier == Tier::nvme ? nvme::kCrcBytes : kPlanAlignment);
}

ActivationStore::ActivationStore(const Parts& parts, Arena& device_memory)
    : parts_(parts), checkpoints_(parts.count) {
  if (parts.place.tier == Tier::device) return;
  device_slots_.resize(std::min(parts.device_slots, parts.count));
  for (DeviceSlot& slot : device_slots_) {
    slot.data = device_memory.take(parts.bytes, kPlanAlignment, "activation checkpoint slot");
    slot.used = parts.device.make_event();
    slot.copied_out = parts.device.make_event();
    slot.copied_in = parts.device.make_event();
  }
  for (Checkpoint& checkpoint : checkpoints_) checkpoint.left = parts.device.make_event();
}

ActivationStore::DeviceSlot* ActivationStore::slot_of(uint32_t index) {
  for (DeviceSlot& slot : device_slots_) {
    if (slot.index == index) return &slot;
  }
  return nullptr;
}

/// An empty slot, else the least recently used one that nobody uses: checkpoints are used in runs, so that is
/// also the one needed last.
ActivationStore::DeviceSlot& ActivationStore::take_slot(uint32_t index) {
  DeviceSlot* best = nullptr;
  for (DeviceSlot& slot : device_slots_) {
    if (slot.in_use) continue;
    if (!best || (slot.index == kNone && best->index != kNone) ||
        ((slot.index == kNone) == (best->index == kNone) && slot.last_use < best->last_use)) {
      best = &slot;
    }
  }
  HEADRACE_CHECK(best, "more activation checkpoints in use at once than activation_slots");
  best->index = index;
  best->in_use = true;
  best->last_use = ++uses_;
  return *best;
}

std::byte* ActivationStore::create(uint32_t index) {
  HEADRACE_CHECK(index < parts_.count, "activation checkpoint index out of range");
  checkpoints_[index].kept = false;
  if (parts_.place.tier == Tier::device) return parts_.place.memory + offset_of(index);
  if (DeviceSlot* stale = slot_of(index)) stale->index = kNone;
  DeviceSlot& slot = take_slot(index);
  parts_.device.compute().wait(*slot.copied_out);
  parts_.device.compute().wait(*slot.copied_in);
  return slot.data;
}

void ActivationStore::keep(uint32_t index) {
  checkpoints_[index].kept = true;
  if (parts_.place.tier == Tier::device) return;
  const Range range("swap_out");
  DeviceSlot* slot = slot_of(index);
  HEADRACE_CHECK(slot && slot->in_use, "keep without create");
  Stream& d2h = parts_.device.d2h();
  parts_.device.compute().record(*slot->used);
  d2h.wait(*slot->used);
  if (parts_.place.tier == Tier::host) {
    d2h.copy(parts_.place.memory + offset_of(index), slot->data, parts_.bytes);
  } else {
    const uint64_t total = stride(parts_.bytes, Tier::nvme);
    for (uint64_t at = 0; at < total;) {
      const size_t part = std::min<uint64_t>(parts_.slots->slot_bytes(), total - at);
      const size_t pinned = parts_.slots->acquire();
      d2h.copy(parts_.slots->data(pinned), slot->data + at, std::min<uint64_t>(part, parts_.bytes - at));
      parts_.slots->write_back_after(pinned, d2h, parts_.place, offset_of(index) + at, part);
      at += part;
    }
    checkpoints_[index].maybe_writing = true;
  }
  d2h.record(*slot->copied_out);
  d2h.record(*checkpoints_[index].left);
}

std::byte* ActivationStore::fetch(uint32_t index) {
  HEADRACE_CHECK(index < parts_.count && checkpoints_[index].kept,
                 "fetch of an activation checkpoint never kept");
  if (parts_.place.tier == Tier::device) return parts_.place.memory + offset_of(index);
  DeviceSlot* slot = slot_of(index);
  if (slot) {
    slot->in_use = true;
    slot->last_use = ++uses_;
  } else {
    slot = &take_slot(index);
    copy_in(index, *slot);
  }
  parts_.device.compute().wait(*slot->copied_in);
  return slot->data;
}

void ActivationStore::copy_in(uint32_t index, DeviceSlot& slot) {
  const Range range("swap_in");
  Stream& h2d = parts_.device.h2d();
  h2d.wait(*slot.used);
  h2d.wait(*slot.copied_out);
  if (parts_.place.tier == Tier::host) {
    h2d.wait(*checkpoints_[index].left);
    h2d.copy(slot.data, parts_.place.memory + offset_of(index), parts_.bytes);
  } else {
    if (std::exchange(checkpoints_[index].maybe_writing, false)) parts_.slots->drain();
    const uint64_t total = stride(parts_.bytes, Tier::nvme);
    for (uint64_t at = 0; at < total;) {
      const size_t part = std::min<uint64_t>(parts_.slots->slot_bytes(), total - at);
      const size_t pinned = parts_.slots->acquire();
      nvme::Store& store = *parts_.place.store;
      const nvme::Request request =
          store.read(parts_.place.extent, offset_of(index) + at, {parts_.slots->data(pinned), part});
      parts_.clock.book(WaitCause::nvme, [&] { store.wait(request); });
      h2d.copy(slot.data + at, parts_.slots->data(pinned), std::min<uint64_t>(part, parts_.bytes - at));
      parts_.slots->give_back_after(pinned, h2d);
      at += part;
    }
  }
  h2d.record(*slot.copied_in);
}

void ActivationStore::done(uint32_t index) {
  if (parts_.place.tier == Tier::device) return;
  DeviceSlot* slot = slot_of(index);
  HEADRACE_CHECK(slot && slot->in_use, "done without create or fetch");
  parts_.device.compute().record(*slot->used);
  slot->in_use = false;
}

void ActivationStore::drop(uint32_t index) {
  checkpoints_[index].kept = false;
  DeviceSlot* slot = slot_of(index);
  if (!slot) return;
  HEADRACE_CHECK(!slot->in_use, "drop before done");
  slot->index = kNone;
}

}  // namespace headrace
