// SPDX-License-Identifier: Apache-2.0
// Where each number of a shard lies in its three planes, in memory and on NVMe alike:
//   weights    bf16 hi or fp32, contiguous: what forward and backward read
//   optimizer  tile after tile, each the other arrays of the format (headrace/adam.h) one after the
//              other, such as [lo][m][v]: one sequential read brings a tile
//   gradients  bf16 or fp32, contiguous
// A shard's length is a multiple of kShardMultiple, so every piece of every plane is whole 4 KiB pages; a
// tile of the optimizer's plane is padded where it is not (q8), and so that checksums on NVMe cover whole
// tiles. Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "headrace/adam.h"
#include "headrace/engine.h"
#include "headrace/nvme.h"

namespace headrace {

constexpr int64_t kTileElems = int64_t(adam::kTileElems);

/// Every planned piece of memory starts on a page.
constexpr size_t kPlanAlignment = 4096;
constexpr uint64_t round_up(uint64_t bytes, uint64_t multiple = kPlanAlignment) {
  return (bytes + multiple - 1) / multiple * multiple;
}

enum class StateKind : uint8_t { weights, optimizer, gradients };
constexpr size_t kStateKinds = 3;
constexpr const char* state_kind_name(StateKind kind) {
  return kind == StateKind::weights ? "weights" : kind == StateKind::optimizer ? "optimizer" : "gradients";
}

class StateLayout {
 public:
  StateLayout(int64_t shard_elems, DType precision, const adam::Format& format, bool shared = false)
      : elems_(shard_elems), precision_(precision), format_(format), arrays_(format), shared_(shared) {}

  [[nodiscard]] int64_t elems() const { return elems_; }
  [[nodiscard]] DType precision() const { return precision_; }
  [[nodiscard]] const adam::Format& format() const { return format_; }
  [[nodiscard]] bool shared() const { return shared_; }  ///< UnitSpec::shared
  /// Bytes of the elements [0, elems) of a plane; tiles being whole, also the offset of element `elems` when
  /// that is a multiple of kTileElems.
  [[nodiscard]] uint64_t bytes(StateKind kind, int64_t elems) const {
    if (kind != StateKind::optimizer) return uint64_t(elems) * dtype_bytes(precision_);
    return uint64_t(elems / kTileElems) * round_up(tile_bytes(kTileElems), nvme::kCrcBytes) +
           round_up(tile_bytes(elems % kTileElems));
  }
  [[nodiscard]] uint64_t bytes(StateKind kind) const { return bytes(kind, elems_); }

  [[nodiscard]] int64_t tiles() const { return (elems_ + kTileElems - 1) / kTileElems; }
  [[nodiscard]] int64_t tile_elems(int64_t tile) const {
    return std::min(kTileElems, elems_ - tile * kTileElems);
  }

  /// Pointers into one tile, given where its weights and its optimizer state start.
  [[nodiscard]] StateTile tile_view(int64_t tile, std::byte* weights, std::byte* optimizer) const {
    StateTile view{.first = tile * kTileElems, .elems = tile_elems(tile), .weights = weights, .arrays = {}};
    view.arrays.count = size_t(view.elems);
    for (const adam::ArrayInfo& info : arrays_) {
      const bool is_weights = &info == arrays_.begin();
      view.arrays.set_array(info.array, is_weights ? weights : optimizer);
      if (!is_weights) optimizer += info.bytes_for(size_t(view.elems));
    }
    return view;
  }

 private:
  /// Of the optimizer's plane, without padding.
  [[nodiscard]] uint64_t tile_bytes(int64_t elems) const {
    uint64_t bytes = 0;
    for (const adam::ArrayInfo& info : arrays_)
      if (&info != arrays_.begin()) bytes += info.bytes_for(size_t(elems));
    return bytes;
  }

  int64_t elems_;
  DType precision_;
  adam::Format format_;
  adam::ArrayList arrays_;
  bool shared_;
};

}  // namespace headrace
