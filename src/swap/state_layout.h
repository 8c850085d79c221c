// SPDX-License-Identifier: Apache-2.0
// Where each number of a shard lies in its three planes, in memory and on NVMe alike:
//   weights    bf16 hi or fp32, contiguous: what forward and backward read
//   optimizer  tile after tile, each [lo][m][v] (bf16) or [m][v] (fp32): one sequential read brings a tile
//   gradients  bf16 or fp32, contiguous
// A shard's length is a multiple of kShardMultiple, so every piece of every plane is whole 4 KiB pages. Pure
// arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "headrace/adam.h"
#include "headrace/engine.h"

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
  StateLayout(int64_t shard_elems, DType precision, bool shared = false)
      : elems_(shard_elems), precision_(precision), shared_(shared) {}

  [[nodiscard]] int64_t elems() const { return elems_; }
  [[nodiscard]] DType precision() const { return precision_; }
  [[nodiscard]] bool shared() const { return shared_; }  ///< UnitSpec::shared
  /// Bytes of one element in a plane.
  [[nodiscard]] size_t elem_bytes(StateKind kind) const {
    if (kind == StateKind::optimizer) return precision_ == DType::bf16 ? 10 : 8;
    return dtype_bytes(precision_);
  }
  /// Bytes of the elements [0, elems) of a plane; tiles being whole, also the offset of element `elems` when
  /// that is a multiple of kTileElems.
  [[nodiscard]] uint64_t bytes(StateKind kind, int64_t elems) const {
    return uint64_t(elems) * elem_bytes(kind);
  }
  [[nodiscard]] uint64_t bytes(StateKind kind) const { return bytes(kind, elems_); }

  [[nodiscard]] int64_t tiles() const { return (elems_ + kTileElems - 1) / kTileElems; }
  [[nodiscard]] int64_t tile_elems(int64_t tile) const {
    return std::min(kTileElems, elems_ - tile * kTileElems);
  }

  /// Pointers into one tile, given where its weights and its optimizer state start.
  [[nodiscard]] StateTile tile_view(int64_t tile, std::byte* weights, std::byte* optimizer) const {
    const int64_t n = tile_elems(tile);
    const size_t lo_bytes = precision_ == DType::bf16 ? size_t(n) * 2 : 0;
    return {.first = tile * kTileElems,
            .elems = n,
            .weights = weights,
            .lo = lo_bytes ? reinterpret_cast<uint16_t*>(optimizer) : nullptr,
            .m = reinterpret_cast<float*>(optimizer + lo_bytes),
            .v = reinterpret_cast<float*>(optimizer + lo_bytes + size_t(n) * 4)};
  }

 private:
  int64_t elems_;
  DType precision_;
  bool shared_;
};

}  // namespace headrace
