// SPDX-License-Identifier: Apache-2.0
// The trainer's own device memory: one block of the engine's workspace, carved by one function, so that what
// is planned is what is used. Tokens and labels of every micro-batch, the loss, boundary gradients, and the
// model's working memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/model.h"

namespace headrace {

struct StepShape {
  int64_t micro_batch, seq_len, grad_accum;
  /// Forward's intermediates of every layer and micro-batch are kept, so that backward need not recompute
  /// them.
  bool keep_saved = false;
};

class StepMemory {
 public:
  StepMemory(const Model& model, const StepShape& shape);
  /// Total bytes; the block given to place() must have as many.
  [[nodiscard]] size_t bytes() const { return bytes_; }
  void place(std::byte* block) { block_ = block; }

  [[nodiscard]] const StepShape& shape() const { return shape_; }
  [[nodiscard]] int32_t* tokens(int64_t micro_batch) const {
    return at<int32_t>(tokens_, micro_batch, row_bytes_);
  }
  [[nodiscard]] int32_t* labels(int64_t micro_batch) const {
    return at<int32_t>(labels_, micro_batch, row_bytes_);
  }
  [[nodiscard]] double* loss_sum() const { return at<double>(loss_, 0, 0); }
  [[nodiscard]] std::byte* boundary_gradient(int64_t micro_batch) const {
    return at<std::byte>(boundary_, micro_batch, boundary_bytes_);
  }
  [[nodiscard]] StageMemory stage(int stage, int64_t micro_batch) const;
  [[nodiscard]] TokenBatch batch(int64_t micro_batch) const {
    return {shape_.micro_batch, shape_.seq_len, tokens(micro_batch), labels(micro_batch)};
  }

 private:
  template <class T>
  T* at(size_t offset, int64_t index, size_t stride) const {
    return reinterpret_cast<T*>(block_ + offset + size_t(index) * stride);
  }

  StepShape shape_;
  int layers_;
  size_t row_bytes_, boundary_bytes_, saved_bytes_;
  size_t tokens_, labels_, loss_, boundary_, saved_, scratch_, bytes_;
  std::byte* block_ = nullptr;
};

}  // namespace headrace
