// SPDX-License-Identifier: Apache-2.0
// Gradients from their fp32 accumulators on the device to their owners: rounded once to the gradient format,
// summed over ranks, and sent to the tier where they wait for the optimizer. On the way each tile's sum of
// squares is taken from the rounded values, so that the norm is of exactly what the optimizer will use, in an
// order that no placement changes.
//
// Buffers are of constant size: a unit leaves in pieces of kGradientPieceElems. One thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "swap/residency.h"
#include "swap/slots.h"

namespace headrace {

constexpr int64_t kGradientPieceElems = 8 * kTileElems;
constexpr size_t kGradientPieces = 3;  ///< on the device at a time
constexpr size_t kNormRecords = 256;   ///< pieces whose sums wait on the host
constexpr size_t kTilesPerPiece = size_t(kGradientPieceElems / kTileElems);

/// One accumulator for all units of the same size, and one for each shared unit: their bytes.
std::vector<uint64_t> accumulator_classes(std::span<const StateLayout> layouts,
                                          std::vector<size_t>& class_of);

class Gradients {
 public:
  struct Parts {
    Device& device;
    Communicator& comm;
    const Residency& residency;
    std::span<const StateLayout> layouts;
    WaitClock& clock;
    SlotPool* slots;  ///< for writes to NVMe; nullptr when no gradients live there
  };
  /// Takes accumulators and pieces from `device_memory`, the norm records from `host_memory`.
  Gradients(const Parts& parts, Arena& device_memory, Arena& host_memory);

  float* accumulator(UnitId unit);
  void hand_over(UnitId unit);

  /// Waits until all gradients are on their tier; the sum of squares over all of them.
  double finish();
  /// Units handed over since the last clear(), in order of declaration.
  [[nodiscard]] std::span<const UnitId> handed_over();
  void clear();

  // What the constructor takes.
  static uint64_t device_bytes(std::span<const StateLayout> layouts, bool stays_on_device);
  static uint64_t host_bytes();

 private:
  static constexpr size_t kNone = size_t(-1);
  struct Accumulator {
    float* data;
    size_t unit = kNone;
  };
  struct DevicePiece {
    std::byte* data = nullptr;  ///< nullptr when gradients stay on the device
    double* sums = nullptr;
    std::unique_ptr<Event> rounded, sent;
  };
  struct Record {
    size_t tiles = 0;
    std::unique_ptr<Event> arrived;
  };

  void send_piece(size_t unit, const float* from, int64_t first, int64_t elems);
  void send_to_nvme(const Place& place, uint64_t offset, const std::byte* from, size_t bytes);
  void retire_oldest_record();

  Parts parts_;
  std::vector<size_t> class_of_;
  std::vector<Accumulator> accumulators_;
  std::vector<DevicePiece> pieces_;
  size_t next_piece_ = 0;
  double* record_sums_;
  std::vector<Record> records_;
  size_t record_first_ = 0, record_count_ = 0;
  double sum_squares_ = 0;
  std::vector<bool> handed_over_;
  std::vector<UnitId> handed_over_list_;
};

}  // namespace headrace
