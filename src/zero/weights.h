// SPDX-License-Identifier: Apache-2.0
// gather and release: a unit's full weights in device memory, brought from wherever its shard lives, ahead of
// need.
//
// Weights that live on the device are simply there. Otherwise units of equal size share a few device slots.
// The declared order decides: units are assigned to slots up to `prefetch_units` gathers ahead, and the slot
// whose unit is needed farthest in the future is taken (Belady), so what still lies in a slot is never
// fetched again. From NVMe, pieces are read into pinned slots ahead of time and copied to the device, in
// program order, when the gather is reached. The calling thread runs ahead of the compute stream, so copies
// overlap compute. One thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "swap/residency.h"
#include "swap/slots.h"

namespace headrace {

/// Units of equal weight bytes share `slots` device slots; a shared unit has one of its own.
struct WeightClass {
  uint64_t bytes;
  size_t slots;
  bool shared;
};
/// Classes for units whose weights live off the device; `class_of[unit]` indexes the result.
std::vector<WeightClass> weight_classes(std::span<const StateLayout> layouts, unsigned prefetch_units,
                                        std::vector<size_t>& class_of);

class Weights {
 public:
  struct Parts {
    Device& device;
    Communicator& comm;
    const Residency& residency;
    std::span<const StateLayout> layouts;
    WaitClock& clock;
    SlotPool* slots;  ///< for reads from NVMe; nullptr when no weights live there
    unsigned prefetch_units;
  };
  /// Takes its device slots from `memory`.
  Weights(const Parts& parts, Arena& memory);
  ~Weights();

  void expect(std::span<const UnitId> order);
  const std::byte* gather(UnitId unit);
  void release(UnitId unit);
  /// The shards have changed: what lies in the device slots is stale.
  void invalidate();

 private:
  static constexpr size_t kNone = size_t(-1);
  struct DeviceSlot {
    std::byte* data;
    size_t weight_class;
    size_t unit = kNone;
    bool loaded = false;        ///< its copy is enqueued (or the slot is still to be filled)
    bool held = false;          ///< between gather and release
    size_t reserved_until = 0;  ///< position + 1 of the last assigned gather
    std::unique_ptr<Event> ready, released;
  };
  struct Piece {  // a read in flight
    size_t unit;
    uint64_t offset;
    size_t bytes, slot;
    nvme::Request request;
  };

  void pump();
  void load(size_t unit, DeviceSlot& slot);
  void load_from_nvme(size_t unit, DeviceSlot& slot);
  bool submit_next_piece(bool block);
  void land_oldest_piece(DeviceSlot& slot);
  void forget_prefetch();
  DeviceSlot* slot_of(size_t unit);
  DeviceSlot* assign(size_t unit, size_t position);
  size_t next_use(size_t unit, size_t from) const;

  Parts parts_;
  std::vector<size_t> class_of_;
  std::vector<DeviceSlot> device_slots_;
  std::span<const UnitId> order_;
  size_t position_ = 0;  ///< gathers done
  size_t assigned_ = 0;  ///< positions assigned to device slots
  // Reads run in order of assignment; `reading_` is the ring of units still to be read.
  std::vector<size_t> reading_;
  size_t reading_first_ = 0, reading_count_ = 0;
  uint64_t reading_offset_ = 0;
  std::vector<Piece> pieces_;
  size_t piece_first_ = 0, piece_count_ = 0;
};

}  // namespace headrace
