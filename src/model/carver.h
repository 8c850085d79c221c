// SPDX-License-Identifier: Apache-2.0
// Offsets of the pieces of one block of device memory. The same calls give the block's size to the plan and
// the addresses to the kernels, so that the two cannot disagree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/dtype.h"

namespace headrace {

class Carver {
 public:
  static constexpr size_t kPieceAlign = 64;
  static constexpr size_t kBlockAlign = 4096;

  /// Offset of a piece of `bytes`.
  size_t take(size_t bytes) {
    const size_t offset = used_;
    used_ += (bytes + kPieceAlign - 1) / kPieceAlign * kPieceAlign;
    return offset;
  }
  size_t take(int64_t rows, int64_t cols, DType dtype) {
    return take(size_t(rows) * size_t(cols) * dtype_bytes(dtype));
  }
  /// Of the whole block.
  [[nodiscard]] size_t bytes() const { return (used_ + kBlockAlign - 1) / kBlockAlign * kBlockAlign; }

 private:
  size_t used_ = 0;
};

}  // namespace headrace
