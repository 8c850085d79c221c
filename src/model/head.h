// SPDX-License-Identifier: Apache-2.0
// The head: final norm, output projection and cross entropy. Logits exist for loss_chunk_rows() rows at a
// time; the loss of a chunk and its gradient are made in one pass over them. The projection is the head's own
// or the embedding's table (tied).
#pragma once

#include "model/parts.h"

namespace headrace {

/// Offsets in StageMemory::scratch.
struct HeadMemory {
  int64_t rows = 0;
  size_t normed = 0;          ///< [rows, hidden], then its gradient chunk by chunk
  size_t mean = 0, rstd = 0;  ///< [rows]
  size_t logits = 0;          ///< fp32 [chunk, vocab]
  size_t dlogits = 0;         ///< [chunk, vocab]; the logits' memory in fp32
  size_t kernel = 0, kernel_bytes = 0;
  size_t bytes = 0;
};

/// The projection's table and, in training, its gradient, wherever they live.
struct HeadTable {
  const void* weight;
  float* gradient;
};

class Head {
 public:
  /// Appends the head's segments to `unit`; tied: the norm only.
  Head(const Architecture& architecture, DType dtype, DeviceKind device, UnitDraft& unit);

  [[nodiscard]] HeadMemory memory(int64_t rows) const;
  /// weights (and gradients) as units_of() names them: the head's unit, then the embedding's when tied.
  void loss(Stream&, const HeadMemory&, StageWeights, StageGradients, const int32_t* labels, const void* x,
            float grad_scale, double* loss_sum, void* dx, std::byte* scratch) const;
  void logits(Stream&, const HeadMemory&, StageWeights, const void* x, float* logits,
              std::byte* scratch) const;

 private:
  struct Chunk;
  [[nodiscard]] HeadTable table(StageWeights weights, StageGradients gradients) const;
  [[nodiscard]] kernels::Gemm projection(int64_t rows) const;
  void loss_of_chunk(const Pass& pass, const HeadTable& table, const Chunk& chunk) const;

  Architecture architecture_;
  DType dtype_;
  DeviceKind device_;
  Norm norm_;
  size_t weight_ = 0;  // untied
};

/// Segment of the token table in the embedding's unit.
constexpr size_t kTokenTableSegment = 0;

}  // namespace headrace
