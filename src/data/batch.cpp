// SPDX-License-Identifier: Apache-2.0
#include "data/batch.h"

#include <algorithm>

#include "headrace/error.h"

namespace headrace {

void Batch::resize(int64_t batch_rows, int64_t seq_len) {
  HEADRACE_CHECK(batch_rows >= 0 && seq_len >= 0, "a batch has no negative size");
  batch = batch_rows;
  seq = seq_len;
  tokens.assign(size_t(batch_rows * seq_len), 0);
  labels.assign(size_t(batch_rows * seq_len), kNoLabel);
}

int64_t Batch::counted() const {
  return std::count_if(labels.begin(), labels.end(), [](int32_t label) { return label != kNoLabel; });
}

void fill_row(Batch& batch, int64_t row, std::span<const int32_t> tokens, std::span<const int32_t> labels) {
  HEADRACE_CHECK(row >= 0 && row < batch.batch, "row outside the batch");
  HEADRACE_CHECK(tokens.size() == labels.size(), "one label per token");
  HEADRACE_CHECK(int64_t(tokens.size()) <= batch.seq, "row longer than the batch's seq");
  const std::span row_tokens(batch.tokens.data() + row * batch.seq, size_t(batch.seq));
  const std::span row_labels(batch.labels.data() + row * batch.seq, size_t(batch.seq));
  std::fill(std::copy(tokens.begin(), tokens.end(), row_tokens.begin()), row_tokens.end(), 0);
  std::fill(row_labels.begin(), row_labels.end(), Batch::kNoLabel);
  if (!labels.empty()) std::copy(labels.begin() + 1, labels.end(), row_labels.begin());
}

}  // namespace headrace
