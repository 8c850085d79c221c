// SPDX-License-Identifier: Apache-2.0
// Transformer families as stages: the embedding, the layers, and the head. A stage turns a checkpointed input
// x into y (forward), or x and dy into dx and weight gradients (backward, recomputing what it needs); the
// head's stage computes the loss and, in training, its gradient in the same pass. The model owns no memory
// and moves nothing: the caller gathers the units that a stage names and passes views. All work is enqueued
// on the given stream.
//
// Stages of a model with L layers: 0 embedding, 1..L layers, L+1 head (final norm and output projection).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/engine.h"

namespace headrace {

enum class Family : uint8_t { llama, gpt2 };

struct ModelConfig {
  Family family = Family::llama;
  int64_t layers = 8, hidden = 256, heads = 8, kv_heads = 4, ffn = 704, vocab = 256, max_seq = 256;
  bool tied = false;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
};
/// Throws ConfigError{"model.KEY"} for impossible shapes (hidden % heads, heads % kv_heads, odd head size
/// ...).
void check_model(const ModelConfig& config);

/// A micro-batch on the device: tokens and labels int32 [batch * seq], labels already shifted, kIgnoreLabel =
/// -100.
struct TokenBatch {
  int64_t batch, seq;
  const int32_t* tokens;
  const int32_t* labels;
  [[nodiscard]] int64_t rows() const { return batch * seq; }
};

/// Device memory a stage works in. `saved` holds what forward leaves for backward; `scratch` only lives in a
/// call.
struct StageMemory {
  std::byte* saved;
  std::byte* scratch;
};

/// Views of the units that a stage names, in the order of units_of(stage).
using StageWeights = std::span<const WeightView>;
using StageGradients = std::span<const GradientView>;

class Model {
 public:
  virtual ~Model() = default;

  [[nodiscard]] virtual const ModelConfig& config() const = 0;
  [[nodiscard]] virtual std::span<const UnitSpec> units() const = 0;
  /// Units whose weights the stage needs in forward (and, for the head, in its loss). Tied: the head's stage
  /// names its own unit (norm) and the embedding's.
  [[nodiscard]] virtual std::span<const UnitId> units_of(int stage) const = 0;
  [[nodiscard]] int stages() const { return int(config().layers) + 2; }

  /// Initial fp32 values of a segment's elements [first, first + out.size()): a function of (seed, names,
  /// position) only. gpt2/llama practice: normal(0, 0.02), residual projections scaled by 1/sqrt(2 layers),
  /// norms 1, biases 0.
  virtual void initialize(UnitId unit, size_t segment, uint64_t seed, int64_t first,
                          std::span<float> out) const = 0;

  /// Bytes of StageMemory for micro-batches of this shape (maximum over stages).
  [[nodiscard]] virtual size_t saved_bytes(int64_t batch, int64_t seq) const = 0;
  [[nodiscard]] virtual size_t scratch_bytes(int64_t batch, int64_t seq) const = 0;
  /// Bytes of a stage's input or output: rows * hidden * dtype.
  [[nodiscard]] virtual size_t activation_bytes(int64_t batch, int64_t seq) const = 0;

  /// Stages 0..L. x is unused in stage 0; y [rows, hidden]. memory.saved is filled for a later backward.
  virtual void forward(Stream&, int stage, StageWeights, const TokenBatch&, const void* x, void* y,
                       StageMemory) = 0;
  /// Stages 0..L, gradients += in fp32. dx unused in stage 0. dx may be the same memory as dy. With
  /// `recompute`, memory.saved is first filled again from x (same bits as forward's). Stage 0 needs no
  /// weights: pass an empty span.
  virtual void backward(Stream&, int stage, StageWeights, StageGradients, const TokenBatch&, const void* x,
                        const void* dy, void* dx, bool recompute, StageMemory) = 0;
  /// Head stage, in chunks of loss_chunk_rows(). loss_sum (double, device) += sum of the counted rows'
  /// losses. With gradients given, also gradients += and dx = d(loss_sum * grad_scale)/dx.
  virtual void loss(Stream&, StageWeights, StageGradients, const TokenBatch&, const void* x, float grad_scale,
                    double* loss_sum, void* dx, StageMemory) = 0;
  /// Head stage for generation: logits fp32 [rows, vocab] of the given rows of x, all at once. Works in
  /// scratch_bytes(1, rows); memory.saved is not used.
  virtual void logits(Stream&, StageWeights, int64_t rows, const void* x, float* logits, StageMemory) = 0;
};

/// Rows of logits that exist at a time in loss(): given by the device's kind alone, so that no budget changes
/// a sum's order. A GPU needs many rows for its products, and each chunk adds to the whole gradient of the
/// table.
constexpr int64_t loss_chunk_rows(DeviceKind device) {
  return device == DeviceKind::host ? 128 : 2048;
}

std::unique_ptr<Model> make_model(const ModelConfig& config, DType precision, DeviceKind device);

}  // namespace headrace
