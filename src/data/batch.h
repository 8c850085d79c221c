// SPDX-License-Identifier: Apache-2.0
// What the trainer feeds on: rows of tokens with their labels already shifted, on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

/// tokens and labels are [batch, seq]; labels[i] is the token that follows tokens[i], or kNoLabel when the
/// target does not count (padding, ignored, no follower).
struct Batch {
  static constexpr int32_t kNoLabel = -100;
  int64_t batch = 0, seq = 0;
  std::vector<int32_t> tokens, labels;
  void resize(int64_t batch_rows, int64_t seq_len);
  /// Labels that count: the denominator of the loss is the sum of this over all micro-batches of a step.
  [[nodiscard]] int64_t counted() const;
};

/// Fills one row from unshifted tokens and labels (equal lengths <= seq): label i becomes labels[i + 1];
/// everything past the end is padding (token 0, no label), by position and never by id.
void fill_row(Batch& batch, int64_t row, std::span<const int32_t> tokens, std::span<const int32_t> labels);

}  // namespace headrace
