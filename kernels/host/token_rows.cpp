// SPDX-License-Identifier: Apache-2.0
// Kernels of the host that read one token per row: embedding and loss.
#include <array>
#include <cstring>

#include "headrace/error.h"
#include "kernels/host/host_kernels.h"
#include "kernels/host/isa.h"
#include "kernels/host/ranges.h"

namespace headrace::kernels::host {

void embedding_forward(const Embedding& e, const int32_t* tokens, const void* table, const void* positions,
                       void* y) {
  const auto add_rows = isa_kernels().add[size_t(e.dtype)];
  parallel_rows(e.rows, e.cols, [=](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) {
      HEADRACE_DCHECK(tokens[row] >= 0 && tokens[row] < e.vocab);
      const void* from = element(table, tokens[row] * e.cols, e.dtype);
      void* to = element(y, row * e.cols, e.dtype);
      if (positions) {
        add_rows(e.cols, from, element(positions, row % e.seq * e.cols, e.dtype), to);
      } else {
        std::memcpy(to, from, size_t(e.cols) * dtype_bytes(e.dtype));
      }
    }
  });
}

void embedding_backward(const Embedding& e, const int32_t* tokens, const void* dy, float* dtable,
                        float* dpositions) {
  const auto accumulate = isa_kernels().accumulate[size_t(e.dtype)];
  parallel_ranges(e.cols, kTurnColumns, [=](int64_t column, int64_t count) {
    for (int64_t row = 0; row < e.rows; ++row) {
      HEADRACE_DCHECK(tokens[row] >= 0 && tokens[row] < e.vocab);
      const void* from = element(dy, row * e.cols + column, e.dtype);
      accumulate(count, from, dtable + tokens[row] * e.cols + column);
      if (dpositions) accumulate(count, from, dpositions + row % e.seq * e.cols + column);
    }
  });
}

void cross_entropy(const CrossEntropy& c, const float* logits, const int32_t* labels, double* loss_sum,
                   void* dlogits) {
  constexpr int64_t kBlockRows = 256;  // row losses wait here to be added in row order
  std::array<double, kBlockRows> losses;
  const auto run = isa_kernels().cross_entropy_row[size_t(c.dtype)];
  for (int64_t block = 0; block < c.rows; block += kBlockRows) {
    const int64_t count = std::min(kBlockRows, c.rows - block);
    double* out = losses.data();
    parallel_rows(count, c.vocab, [=](int64_t first, int64_t rows) {
      for (int64_t i = first; i < first + rows; ++i) {
        const int64_t row = block + i;
        const int32_t label = labels[row];
        HEADRACE_DCHECK(label == kIgnoreLabel || (label >= 0 && label < c.vocab));
        out[i] = run(c.vocab, c.grad_scale, logits + row * c.vocab, label,
                     element(dlogits, row * c.vocab, c.dtype));
      }
    });
    for (int64_t i = 0; i < count; ++i) *loss_sum += losses[size_t(i)];
  }
}

}  // namespace headrace::kernels::host
