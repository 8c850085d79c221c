// SPDX-License-Identifier: Apache-2.0
#include "model/head.h"

#include <algorithm>

#include "kernels/pointwise.h"
#include "model/carver.h"

namespace headrace {

/// A run of rows whose logits exist at the same time.
struct Head::Chunk {
  std::byte* normed;  ///< in: normed rows; out, in training: their gradient
  const int32_t* labels;
  float* logits;
  std::byte* dlogits;  ///< null without gradients
  float grad_scale;
  double* loss_sum;
};

Head::Head(const Architecture& a, DType dtype, DeviceKind device, UnitDraft& unit)
    : architecture_(a), dtype_(dtype), device_(device), norm_(a, "norm", unit) {
  if (!a.config.tied)
    weight_ = unit.add({"weight", {a.config.vocab, a.config.hidden}, true},
                       {SegmentInit::Kind::normal, kInitStddev});
}

HeadTable Head::table(StageWeights weights, StageGradients gradients) const {
  const size_t unit = architecture_.config.tied ? 1 : 0;
  const size_t segment = architecture_.config.tied ? kTokenTableSegment : weight_;
  return {weights[unit].segment(segment), gradients.empty() ? nullptr : gradients[unit].segment(segment)};
}

kernels::Gemm Head::projection(int64_t rows) const {
  const ModelConfig& c = architecture_.config;
  return {.m = rows,
          .n = c.vocab,
          .k = c.hidden,
          .a = nullptr,
          .lda = c.hidden,
          .b = nullptr,
          .ldb = c.hidden,
          .trans_b = true,
          .in = dtype_,
          .c = nullptr,
          .ldc = c.vocab,
          .out = DType::f32};
}

HeadMemory Head::memory(int64_t rows) const {
  const ModelConfig& c = architecture_.config;
  const int64_t most_rows = loss_chunk_rows(device_);
  const int64_t chunk_rows = std::min(rows, most_rows);
  HeadMemory memory{.rows = rows};
  Carver scratch;
  memory.normed = scratch.take(rows, c.hidden, dtype_);
  memory.mean = scratch.take(rows, 1, DType::f32);
  memory.rstd = scratch.take(rows, 1, DType::f32);
  memory.logits = scratch.take(chunk_rows, c.vocab, DType::f32);
  memory.dlogits = dtype_ == DType::f32 ? memory.logits : scratch.take(chunk_rows, c.vocab, dtype_);

  size_t kernel_bytes =
      std::max(norm_.scratch_bytes(device_, rows), kernels::cross_entropy_scratch_bytes(device_, chunk_rows));
  for (const int64_t m : {chunk_rows, rows % most_rows, rows}) {
    if (m == 0) continue;  // logits() projects all rows at once
    kernel_bytes = std::max({kernel_bytes, kernels::gemm_scratch_bytes(device_, projection(m)),
                             kernels::linear_scratch_bytes(device_, {m, c.hidden, c.vocab, dtype_})});
  }
  memory.kernel_bytes = kernel_bytes;
  memory.kernel = scratch.take(kernel_bytes);
  memory.bytes = scratch.bytes();
  return memory;
}

void Head::loss_of_chunk(const Pass& pass, const HeadTable& table, const Chunk& chunk) const {
  const ModelConfig& c = architecture_.config;
  kernels::Gemm logits = projection(pass.rows);
  logits.a = chunk.normed;
  logits.b = table.weight;
  logits.c = chunk.logits;
  kernels::gemm(pass.stream, logits, pass.scratch);
  kernels::cross_entropy(pass.stream, {pass.rows, c.vocab, chunk.grad_scale, dtype_}, chunk.logits,
                         chunk.labels, chunk.loss_sum, chunk.dlogits, pass.scratch);
  if (!chunk.dlogits) return;
  const kernels::Linear linear{pass.rows, c.hidden, c.vocab, dtype_};
  kernels::linear_backward_weight(pass.stream, linear, chunk.dlogits, chunk.normed, table.gradient, nullptr,
                                  pass.scratch);
  kernels::linear_backward_input(pass.stream, linear, chunk.dlogits, table.weight, chunk.normed,
                                 pass.scratch);
}

void Head::loss(Stream& stream, const HeadMemory& memory, StageWeights weights, StageGradients gradients,
                const int32_t* labels, const void* x, float grad_scale, double* loss_sum, void* dx,
                std::byte* scratch) const {
  const bool training = !gradients.empty();
  const HeadTable head_table = table(weights, gradients);
  const NormStats stats{reinterpret_cast<float*>(scratch + memory.mean),
                        reinterpret_cast<float*>(scratch + memory.rstd)};
  Pass pass{.stream = stream,
            .rows = memory.rows,
            .weights = &weights[0],
            .gradients = training ? &gradients[0] : nullptr,
            .scratch = {scratch + memory.kernel, memory.kernel_bytes}};
  std::byte* const normed = scratch + memory.normed;
  norm_.forward(pass, x, normed, stats);
  const size_t row_bytes = size_t(architecture_.config.hidden) * dtype_bytes(dtype_);
  const int64_t most_rows = loss_chunk_rows(device_);
  for (int64_t first = 0; first < memory.rows; first += most_rows) {
    pass.rows = std::min(most_rows, memory.rows - first);
    loss_of_chunk(pass, head_table,
                  {.normed = normed + size_t(first) * row_bytes,
                   .labels = labels + first,
                   .logits = reinterpret_cast<float*>(scratch + memory.logits),
                   .dlogits = training ? scratch + memory.dlogits : nullptr,
                   .grad_scale = grad_scale,
                   .loss_sum = loss_sum});
  }
  pass.rows = memory.rows;
  if (training) norm_.backward(pass, x, stats, normed, nullptr, dx);
}

void Head::logits(Stream& stream, const HeadMemory& memory, StageWeights weights, const void* x,
                  float* logits, std::byte* scratch) const {
  const NormStats stats{reinterpret_cast<float*>(scratch + memory.mean),
                        reinterpret_cast<float*>(scratch + memory.rstd)};
  const Pass pass{.stream = stream,
                  .rows = memory.rows,
                  .weights = &weights[0],
                  .gradients = nullptr,
                  .scratch = {scratch + memory.kernel, memory.kernel_bytes}};
  norm_.forward(pass, x, scratch + memory.normed, stats);
  kernels::Gemm gemm = projection(memory.rows);
  gemm.a = scratch + memory.normed;
  gemm.b = table(weights, {}).weight;
  gemm.c = logits;
  kernels::gemm(stream, gemm, pass.scratch);
}

}  // namespace headrace
