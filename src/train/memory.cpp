// SPDX-License-Identifier: Apache-2.0
#include "train/memory.h"

namespace headrace {
namespace {

constexpr size_t kAlignment = 4096;
size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

StepMemory::StepMemory(const Model& model, const StepShape& shape)
    : shape_(shape),
      layers_(int(model.config().layers)),
      row_bytes_(aligned(size_t(shape.micro_batch * shape.seq_len) * sizeof(int32_t))),
      boundary_bytes_(aligned(model.activation_bytes(shape.micro_batch, shape.seq_len))),
      saved_bytes_(aligned(model.saved_bytes(shape.micro_batch, shape.seq_len))) {
  const auto micro_batches = size_t(shape.grad_accum);
  const size_t saved_sets = shape.keep_saved ? 1 + size_t(layers_) * micro_batches : 1;
  size_t end = 0;
  const auto take = [&](size_t bytes) {
    const size_t offset = end;
    end += aligned(bytes);
    return offset;
  };
  tokens_ = take(micro_batches * row_bytes_);
  labels_ = take(micro_batches * row_bytes_);
  loss_ = take(sizeof(double));
  boundary_ = take(micro_batches * boundary_bytes_);
  saved_ = take(saved_sets * saved_bytes_);
  scratch_ = take(model.scratch_bytes(shape.micro_batch, shape.seq_len));
  bytes_ = end;
}

/// Set 0 is shared; with keep_saved every layer and micro-batch has one of its own.
StageMemory StepMemory::stage(int stage, int64_t micro_batch) const {
  const bool own = shape_.keep_saved && stage >= 1 && stage <= layers_;
  const int64_t set = own ? 1 + (stage - 1) * shape_.grad_accum + micro_batch : 0;
  return {at<std::byte>(saved_, set, saved_bytes_), at<std::byte>(scratch_, 0, 0)};
}

}  // namespace headrace
