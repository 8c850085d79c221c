// SPDX-License-Identifier: Apache-2.0
// Activation checkpoints on any tier behind the public ActivationArea. On the device every index has memory
// of its own. Otherwise a few device slots are written and read by the kernels; keep() starts the copy to the
// checkpoint's place in host memory, or through pinned slots to NVMe, and fetch() brings it back unless it
// still lies in a slot. One thread.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "headrace/engine.h"
#include "swap/slots.h"

namespace headrace {

class ActivationStore : public ActivationArea {
 public:
  struct Parts {
    Device& device;
    WaitClock& clock;
    Place place;     ///< of all checkpoints, one after another at multiples of stride()
    uint64_t bytes;  ///< of one checkpoint
    uint32_t count;
    uint32_t device_slots;
    SlotPool* slots;  ///< pinned, to and from NVMe; nullptr otherwise
  };
  /// Takes its device slots from `device_memory` unless the tier is device.
  ActivationStore(const Parts& parts, Arena& device_memory);

  std::byte* create(uint32_t index) override;
  void keep(uint32_t index) override;
  std::byte* fetch(uint32_t index) override;
  void done(uint32_t index) override;
  void drop(uint32_t index) override;

  /// Distance of two checkpoints in their place: NVMe transfers start and end on multiples of
  /// nvme::kCrcBytes.
  static uint64_t stride(uint64_t bytes, Tier tier);

 private:
  static constexpr uint32_t kNone = uint32_t(-1);
  struct DeviceSlot {
    std::byte* data = nullptr;
    uint32_t index = kNone;
    bool in_use = false;  ///< between create or fetch and done
    uint64_t last_use = 0;
    std::unique_ptr<Event> used, copied_out, copied_in;
  };
  struct Checkpoint {
    bool kept = false;
    bool maybe_writing = false;   ///< its write to NVMe may still be under way
    std::unique_ptr<Event> left;  ///< its copy to the host has been made
  };

  DeviceSlot& take_slot(uint32_t index);
  DeviceSlot* slot_of(uint32_t index);
  void copy_in(uint32_t index, DeviceSlot& slot);
  [[nodiscard]] uint64_t offset_of(uint32_t index) const {
    return index * stride(parts_.bytes, parts_.place.tier);
  }

  Parts parts_;
  std::vector<DeviceSlot> device_slots_;
  std::vector<Checkpoint> checkpoints_;
  uint64_t uses_ = 0;
};

}  // namespace headrace
