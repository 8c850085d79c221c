// SPDX-License-Identifier: Apache-2.0
#include "zero/gradients.h"

#include <algorithm>

#include "device/range.h"
#include "headrace/error.h"
#include "kernels/pointwise.h"

namespace headrace {
namespace {

constexpr size_t kSumsBytes = kTilesPerPiece * sizeof(double);

uint64_t piece_bytes(std::span<const StateLayout> layouts) {
  int64_t elems = 0;
  for (const StateLayout& layout : layouts)
    elems = std::max(elems, std::min(layout.elems(), kGradientPieceElems));
  return layouts.empty() ? 0 : layouts[0].bytes(StateKind::gradients, elems);
}

}  // namespace

std::vector<uint64_t> accumulator_classes(std::span<const StateLayout> layouts,
                                          std::vector<size_t>& class_of) {
  constexpr size_t kNone = size_t(-1);
  std::vector<uint64_t> classes;
  class_of.assign(layouts.size(), kNone);
  for (size_t unit = 0; unit < layouts.size(); ++unit) {
    for (size_t earlier = 0; earlier < unit && !layouts[unit].shared(); ++earlier) {
      if (layouts[earlier].shared() || layouts[earlier].elems() != layouts[unit].elems()) continue;
      class_of[unit] = class_of[earlier];
      break;
    }
    if (class_of[unit] != kNone) continue;
    class_of[unit] = classes.size();
    classes.push_back(uint64_t(layouts[unit].elems()) * sizeof(float));
  }
  return classes;
}

uint64_t Gradients::device_bytes(std::span<const StateLayout> layouts, bool stays_on_device) {
  std::vector<size_t> class_of;
  uint64_t total = 0;
  for (uint64_t bytes : accumulator_classes(layouts, class_of)) total += round_up(bytes);
  total += kGradientPieces * round_up(kSumsBytes);
  if (!stays_on_device) total += kGradientPieces * round_up(piece_bytes(layouts));
  return total;
}

uint64_t Gradients::host_bytes() {
  return kNormRecords * kSumsBytes;
}

Gradients::Gradients(const Parts& parts, Arena& device_memory, Arena& host_memory)
    : parts_(parts), pieces_(kGradientPieces), records_(kNormRecords), handed_over_(parts.layouts.size()) {
  for (uint64_t bytes : accumulator_classes(parts.layouts, class_of_)) {
    accumulators_.push_back(
        {reinterpret_cast<float*>(device_memory.take(bytes, kPlanAlignment, "gradient accumulator"))});
  }
  const bool stays =
      parts.layouts.empty() || parts.residency.of(UnitId{0}, StateKind::gradients).tier == Tier::device;
  for (DevicePiece& piece : pieces_) {
    if (!stays) piece.data = device_memory.take(piece_bytes(parts.layouts), kPlanAlignment, "gradient piece");
    piece.sums = reinterpret_cast<double*>(device_memory.take(kSumsBytes, kPlanAlignment, "gradient norms"));
    piece.rounded = parts.device.make_event();
    piece.sent = parts.device.make_event();
  }
  record_sums_ = reinterpret_cast<double*>(host_memory.take(host_bytes(), kPlanAlignment, "gradient norms"));
  for (Record& record : records_) record.arrived = parts.device.make_event();
  handed_over_list_.reserve(parts.layouts.size());
}

float* Gradients::accumulator(UnitId id) {
  const auto unit = size_t(id);
  Accumulator& accumulator = accumulators_[class_of_[unit]];
  if (accumulator.unit == unit) return accumulator.data;
  HEADRACE_CHECK(accumulator.unit == kNone, "another unit of this size has not been handed over yet");
  HEADRACE_CHECK(!handed_over_[unit], "the unit's gradient was already handed over in this step");
  accumulator.unit = unit;
  parts_.device.compute().zero(accumulator.data, size_t(parts_.layouts[unit].elems()) * sizeof(float));
  return accumulator.data;
}

void Gradients::hand_over(UnitId id) {
  const auto unit = size_t(id);
  Accumulator& accumulator = accumulators_[class_of_[unit]];
  HEADRACE_CHECK(accumulator.unit == unit, "reduce_scatter without gradient");
  const int64_t elems = parts_.layouts[unit].elems();
  parts_.comm.reduce_scatter(parts_.device.compute(), accumulator.data, size_t(elems), accumulator.data);
  for (int64_t first = 0; first < elems; first += kGradientPieceElems) {
    send_piece(unit, accumulator.data + first, first, std::min(kGradientPieceElems, elems - first));
  }
  accumulator.unit = kNone;
  handed_over_[unit] = true;
}

void Gradients::send_piece(size_t unit, const float* from, int64_t first, int64_t elems) {
  if (record_count_ == records_.size()) retire_oldest_record();
  const StateLayout& layout = parts_.layouts[unit];
  const Place& place = parts_.residency.of(UnitId{uint32_t(unit)}, StateKind::gradients);
  Stream& compute = parts_.device.compute();
  Stream& d2h = parts_.device.d2h();
  DevicePiece& piece = pieces_[next_piece_++ % pieces_.size()];
  const uint64_t offset = layout.bytes(StateKind::gradients, first);
  const size_t bytes = layout.bytes(StateKind::gradients, elems);
  std::byte* rounded = piece.data ? piece.data : place.memory + offset;

  compute.wait(*piece.sent);
  kernels::round_and_sum_squares(compute, elems, from, layout.precision(), rounded, piece.sums);
  compute.record(*piece.rounded);
  d2h.wait(*piece.rounded);
  if (place.tier == Tier::host) d2h.copy(place.memory + offset, rounded, bytes);
  if (place.tier == Tier::nvme) send_to_nvme(place, offset, rounded, bytes);

  const size_t index = (record_first_ + record_count_++) % records_.size();
  Record& record = records_[index];
  record.tiles = size_t((elems + kTileElems - 1) / kTileElems);
  d2h.copy(record_sums_ + index * kTilesPerPiece, piece.sums, record.tiles * sizeof(double));
  d2h.record(*record.arrived);
  d2h.record(*piece.sent);
}

void Gradients::send_to_nvme(const Place& place, uint64_t offset, const std::byte* from, size_t bytes) {
  const Range range("swap_out");
  Stream& d2h = parts_.device.d2h();
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(parts_.slots->slot_bytes(), bytes - done);
    const size_t slot = parts_.slots->acquire();
    d2h.copy(parts_.slots->data(slot), from + done, part);
    parts_.slots->write_back_after(slot, d2h, place, offset + done, part);
    done += part;
  }
}

void Gradients::retire_oldest_record() {
  Record& record = records_[record_first_];
  parts_.clock.book(WaitCause::copy, [&] { record.arrived->synchronize(); });
  const double* sums = record_sums_ + record_first_ * kTilesPerPiece;
  for (size_t tile = 0; tile < record.tiles; ++tile) sum_squares_ += sums[tile];
  record_first_ = (record_first_ + 1) % records_.size();
  --record_count_;
}

double Gradients::finish() {
  for (const Accumulator& accumulator : accumulators_) {
    HEADRACE_CHECK(accumulator.unit == kNone, "step before reduce_scatter of every gradient");
  }
  while (record_count_ > 0) retire_oldest_record();
  if (parts_.slots) parts_.slots->drain();
  return sum_squares_;
}

std::span<const UnitId> Gradients::handed_over() {
  handed_over_list_.clear();
  for (size_t unit = 0; unit < handed_over_.size(); ++unit) {
    if (handed_over_[unit]) handed_over_list_.push_back(UnitId{uint32_t(unit)});
  }
  return handed_over_list_;
}

void Gradients::clear() {
  handed_over_.assign(handed_over_.size(), false);
  sum_squares_ = 0;
}

}  // namespace headrace
