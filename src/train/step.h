// SPDX-License-Identifier: Apache-2.0
// One optimizer step, and one evaluation pass, on the public engine. The only file that knows the order
// (step.cpp).
#pragma once

#include <span>
#include <vector>

#include "data/batch.h"
#include "headrace/engine.h"
#include "model/model.h"
#include "train/memory.h"

namespace headrace {

/// The order of gathers in a pass, for Engine::expect().
struct GatherOrder {
  explicit GatherOrder(const Model& model);
  std::vector<UnitId> train, evaluate;
};

/// What a step works with; all of it outlives the step.
struct StepContext {
  Engine& engine;
  Model& model;
  const StepMemory& memory;
  const GatherOrder& order;
};

/// Activation checkpoints of a model with this many stages: the inputs of stages 1 .. stages-1 of every
/// micro-batch.
constexpr uint32_t activation_count(int stages, int64_t grad_accum) {
  return uint32_t(stages - 1) * uint32_t(grad_accum);
}

struct StepOutcome {
  double loss;  ///< mean over counted targets, nats; 0 when none counts
  double grad_norm;
  bool skipped;     ///< nothing was updated: a non-finite gradient, or no target that counts
  int64_t counted;  ///< targets that count: the denominator of the loss
};

/// Forward, backward and update over `micro_batches` (at most shape.grad_accum of them).
StepOutcome train_step(const StepContext& context, std::span<const Batch> micro_batches,
                       const StepOptions& options);

/// Forward and loss only; returns the sum of the losses of the counted targets.
double evaluate(const StepContext& context, std::span<const Batch> micro_batches);

/// Forward of one micro-batch of one row; fp32 logits [vocab] of its position `row` into device memory
/// `logits`.
void next_token_logits(const StepContext& context, const Batch& batch, int64_t row, float* logits);

}  // namespace headrace
