// SPDX-License-Identifier: Apache-2.0
#include "zero/weights.h"

#include <algorithm>
#include <limits>

#include "device/range.h"
#include "headrace/error.h"

namespace headrace {

std::vector<WeightClass> weight_classes(std::span<const StateLayout> layouts, unsigned prefetch_units,
                                        std::vector<size_t>& class_of) {
  std::vector<WeightClass> classes;
  class_of.clear();
  for (const StateLayout& layout : layouts) {
    const uint64_t bytes = layout.bytes(StateKind::weights);
    auto found = std::find_if(classes.begin(), classes.end(), [&](const WeightClass& c) {
      return c.bytes == bytes && !c.shared && !layout.shared();
    });
    if (found == classes.end()) found = classes.insert(classes.end(), WeightClass{bytes, 0, layout.shared()});
    found->slots = std::min<size_t>(found->slots + 1, 1 + size_t(prefetch_units));
    class_of.push_back(size_t(found - classes.begin()));
  }
  return classes;
}

Weights::Weights(const Parts& parts, Arena& memory) : parts_(parts) {
  const size_t units = parts.layouts.size();
  const auto classes = weight_classes(parts.layouts, parts.prefetch_units, class_of_);
  const bool off_device = units > 0 && parts.residency.of(UnitId{0}, StateKind::weights).tier != Tier::device;
  for (size_t c = 0; off_device && c < classes.size(); ++c) {
    for (size_t i = 0; i < classes[c].slots; ++i) {
      device_slots_.push_back({.data = memory.take(classes[c].bytes, 4096, "gathered weights"),
                               .weight_class = c,
                               .ready = parts.device.make_event(),
                               .released = parts.device.make_event()});
    }
  }
  reading_.resize(device_slots_.size() + 1);
  pieces_.resize(64);
}

Weights::~Weights() {
  try {
    forget_prefetch();
  } catch (const std::exception&) {
    // The reads have landed, which is all that the memory's owner needs.
  }
}

void Weights::expect(std::span<const UnitId> order) {
  forget_prefetch();
  order_ = order;
  position_ = assigned_ = 0;
  pump();
}

const std::byte* Weights::gather(UnitId id) {
  const size_t unit = size_t(id);
  const Place& place = parts_.residency.of(id, StateKind::weights);
  if (place.tier == Tier::device) return place.memory;

  if (position_ < order_.size() && order_[position_] != id) {
    forget_prefetch();
    order_ = {};
  }
  const size_t position = position_++;
  DeviceSlot* slot = slot_of(unit);
  if (assigned_ <= position) {
    slot = assign(unit, position);
    assigned_ = position + 1;
  }
  HEADRACE_CHECK(slot, "more units are gathered at once than prefetch_units allows");
  HEADRACE_CHECK(!slot->held, "gathered twice without release");
  if (!slot->loaded) load(unit, *slot);
  parts_.device.compute().wait(*slot->ready);
  slot->held = true;
  pump();
  return slot->data;
}

void Weights::release(UnitId id) {
  if (parts_.residency.of(id, StateKind::weights).tier == Tier::device) return;
  DeviceSlot* slot = slot_of(size_t(id));
  HEADRACE_CHECK(slot && slot->held, "released without gather");
  parts_.device.compute().record(*slot->released);
  slot->held = false;
  pump();
}

void Weights::invalidate() {
  forget_prefetch();
  for (DeviceSlot& slot : device_slots_) {
    HEADRACE_CHECK(!slot.held, "weights change while a unit is gathered");
    slot.unit = kNone;
  }
}

/// Assigns as many of the next gathers to device slots as the prefetch distance and the slots allow; reads
/// ahead.
void Weights::pump() {
  if (device_slots_.empty()) return;
  const size_t limit = std::min(order_.size(), position_ + parts_.prefetch_units);
  while (assigned_ < limit && assign(size_t(order_[assigned_]), assigned_)) ++assigned_;
  while (reading_count_ > 0 && submit_next_piece(false)) {
  }
}

Weights::DeviceSlot* Weights::slot_of(size_t unit) {
  for (DeviceSlot& slot : device_slots_) {
    if (slot.unit == unit) return &slot;
  }
  return nullptr;
}

/// Position of the next gather of `unit` at or after `from`, the order being cyclic; the maximum when there
/// is none.
size_t Weights::next_use(size_t unit, size_t from) const {
  for (size_t i = 0; i < order_.size(); ++i) {
    if (size_t(order_[(from + i) % order_.size()]) == unit) return from + i;
  }
  return std::numeric_limits<size_t>::max();
}

Weights::DeviceSlot* Weights::assign(size_t unit, size_t position) {
  if (DeviceSlot* slot = slot_of(unit)) {
    slot->reserved_until = position + 1;
    return slot;
  }
  DeviceSlot* victim = nullptr;
  size_t victim_use = 0;
  for (DeviceSlot& slot : device_slots_) {
    if (slot.weight_class != class_of_[unit] || slot.held) continue;
    if (slot.unit != kNone && slot.reserved_until > position_) continue;
    const size_t use =
        slot.unit == kNone ? std::numeric_limits<size_t>::max() : next_use(slot.unit, position + 1);
    if (!victim || use > victim_use) victim = &slot, victim_use = use;
  }
  if (!victim) return nullptr;
  victim->unit = unit;
  victim->loaded = false;
  victim->reserved_until = position + 1;
  const bool on_nvme = parts_.residency.of(UnitId{uint32_t(unit)}, StateKind::weights).tier == Tier::nvme;
  if (on_nvme && parts_.layouts[unit].elems() > 0) {
    reading_[(reading_first_ + reading_count_) % reading_.size()] = unit;
    ++reading_count_;
  }
  return victim;
}

void Weights::load(size_t unit, DeviceSlot& slot) {
  const Range range("swap_in");
  const UnitId id{uint32_t(unit)};
  const Place& place = parts_.residency.of(id, StateKind::weights);
  Stream& h2d = parts_.device.h2d();
  h2d.wait(*slot.released);  // the unit that lay here before
  if (place.tier == Tier::host) {
    h2d.copy(slot.data, place.memory, parts_.layouts[unit].bytes(StateKind::weights));
  } else {
    load_from_nvme(unit, slot);
  }
  parts_.comm.all_gather(h2d, slot.data, parts_.layouts[unit].bytes(StateKind::weights), slot.data);
  h2d.record(*slot.ready);
  slot.loaded = true;
}

/// Reads run in assignment order and this unit is the oldest assigned one that is not loaded, so its pieces
/// come first.
void Weights::load_from_nvme(size_t unit, DeviceSlot& slot) {
  uint64_t left = parts_.layouts[unit].bytes(StateKind::weights);
  while (left > 0) {
    if (piece_count_ == 0) submit_next_piece(true);
    HEADRACE_CHECK(pieces_[piece_first_].unit == unit, "reads out of order");
    left -= pieces_[piece_first_].bytes;
    land_oldest_piece(slot);
    while (reading_count_ > 0 && submit_next_piece(false)) {
    }
  }
}

bool Weights::submit_next_piece(bool block) {
  if (piece_count_ == pieces_.size()) return false;
  size_t slot = 0;
  if (block) {
    slot = parts_.slots->acquire();
  } else if (!parts_.slots->try_acquire(slot)) {
    return false;
  }
  const size_t unit = reading_[reading_first_];
  const Place& place = parts_.residency.of(UnitId{uint32_t(unit)}, StateKind::weights);
  const uint64_t total = parts_.layouts[unit].bytes(StateKind::weights);
  const auto bytes = size_t(std::min<uint64_t>(parts_.slots->slot_bytes(), total - reading_offset_));
  const nvme::Request request =
      place.store->read(place.extent, reading_offset_, {parts_.slots->data(slot), bytes});
  pieces_[(piece_first_ + piece_count_++) % pieces_.size()] = {unit, reading_offset_, bytes, slot, request};
  reading_offset_ += bytes;
  if (reading_offset_ == total) {
    reading_offset_ = 0;
    reading_first_ = (reading_first_ + 1) % reading_.size();
    --reading_count_;
  }
  return true;
}

void Weights::land_oldest_piece(DeviceSlot& slot) {
  const Piece piece = pieces_[piece_first_];
  piece_first_ = (piece_first_ + 1) % pieces_.size();
  --piece_count_;
  Stream& h2d = parts_.device.h2d();
  const Place& place = parts_.residency.of(UnitId{uint32_t(piece.unit)}, StateKind::weights);
  try {
    parts_.clock.book(WaitCause::nvme, [&] { place.store->wait(piece.request); });
  } catch (...) {
    parts_.slots->give_back_after(piece.slot, h2d);
    throw;
  }
  h2d.copy(slot.data + piece.offset, parts_.slots->data(piece.slot), piece.bytes);
  parts_.slots->give_back_after(piece.slot, h2d);
}

/// Waits for reads in flight and takes back all assignments that are not loaded.
void Weights::forget_prefetch() {
  std::exception_ptr first;
  while (piece_count_ > 0) {
    const Piece piece = pieces_[piece_first_];
    piece_first_ = (piece_first_ + 1) % pieces_.size();
    --piece_count_;
    try {
      parts_.residency.of(UnitId{uint32_t(piece.unit)}, StateKind::weights).store->wait(piece.request);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
    parts_.slots->give_back_after(piece.slot, parts_.device.h2d());
  }
  reading_first_ = reading_count_ = 0;
  reading_offset_ = 0;
  for (DeviceSlot& slot : device_slots_) {
    slot.reserved_until = 0;
    if (!slot.loaded) slot.unit = kNone;
  }
  assigned_ = position_;
  if (first) std::rethrow_exception(first);
}

}  // namespace headrace
