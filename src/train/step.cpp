// SPDX-License-Identifier: Apache-2.0
// ONE STEP. Layer-major: every micro-batch passes a stage before the next stage is gathered, so that weights
// cross each link twice a step and not twice per micro-batch, and a unit's gradient is summed on the device
// and leaves once.
//
//   forward    stages 0 .. L   gather; y = f(x) of every micro-batch, kept as activation checkpoint; release
//   turn       stage L+1       gather; loss, its gradient and the head's weight gradient; release
//   backward   stages L .. 1   gather; recompute from x, dx from dy, weight gradients +=; release;
//                              reduce_scatter
//              stage 0         the embedding's gradient; reduce_scatter
//   update     norm over everything, clip, AdamW on every unit wherever it lives
#include "train/step.h"

#include <optional>

#include "headrace/error.h"
#include "train/stage.h"

namespace headrace {
namespace {

/// Stages 0 .. L. Without `for_backward`, a stage's input is dropped as soon as it has been used.
void forward(const StepContext& c, int64_t micro_batches, bool for_backward) {
  ActivationArea& activations = c.engine.activations();
  const int head = c.model.stages() - 1;
  for (int stage = 0; stage < head; ++stage) {
    GatheredStage gathered(c, stage);
    for (int64_t mb = 0; mb < micro_batches; ++mb) {
      const uint32_t in = stage > 0 ? input_of(c, stage, mb) : 0, out = input_of(c, stage + 1, mb);
      const std::byte* x = stage > 0 ? activations.fetch(in) : nullptr;
      std::byte* y = activations.create(out);
      c.model.forward(c.engine.compute(), stage, gathered.weights(), c.memory.batch(mb), x, y,
                      c.memory.stage(stage, mb));
      activations.keep(out);
      activations.done(out);
      if (stage > 0) activations.done(in);
      if (stage > 0 && !for_backward) activations.drop(in);
    }
    gathered.release();
  }
}

/// Stage L+1. With a denominator, also its gradients and the boundary gradients.
void loss(const StepContext& c, int64_t micro_batches, int64_t denominator) {
  ActivationArea& activations = c.engine.activations();
  const int head = c.model.stages() - 1;
  const bool training = denominator > 0;
  const float grad_scale = training ? 1.0f / float(denominator) : 0.0f;
  GatheredStage gathered(c, head);
  std::optional<GradientsOfStage> gradients;
  if (training) gradients.emplace(c, head);
  for (int64_t mb = 0; mb < micro_batches; ++mb) {
    const uint32_t in = input_of(c, head, mb);
    c.model.loss(c.engine.compute(), gathered.weights(), training ? gradients->views() : StageGradients{},
                 c.memory.batch(mb), activations.fetch(in), grad_scale, c.memory.loss_sum(),
                 training ? c.memory.boundary_gradient(mb) : nullptr, c.memory.stage(head, mb));
    activations.done(in);
    activations.drop(in);
  }
  gathered.release();
  if (training) gradients->reduce_scatter();
}

/// Stages L .. 0.
void backward(const StepContext& c, int64_t micro_batches) {
  ActivationArea& activations = c.engine.activations();
  const bool recompute = !c.memory.shape().keep_saved;
  for (int stage = c.model.stages() - 2; stage >= 1; --stage) {
    GatheredStage gathered(c, stage);
    GradientsOfStage gradients(c, stage);
    for (int64_t mb = 0; mb < micro_batches; ++mb) {
      const uint32_t in = input_of(c, stage, mb);
      std::byte* boundary = c.memory.boundary_gradient(mb);
      c.model.backward(c.engine.compute(), stage, gathered.weights(), gradients.views(), c.memory.batch(mb),
                       activations.fetch(in), boundary, boundary, recompute, c.memory.stage(stage, mb));
      activations.done(in);
      activations.drop(in);
    }
    gathered.release();
    gradients.reduce_scatter();
  }
  GradientsOfStage gradients(c, 0);
  for (int64_t mb = 0; mb < micro_batches; ++mb) {
    c.model.backward(c.engine.compute(), 0, {}, gradients.views(), c.memory.batch(mb), nullptr,
                     c.memory.boundary_gradient(mb), nullptr, false, c.memory.stage(0, mb));
  }
  gradients.reduce_scatter();
}

}  // namespace

GatherOrder::GatherOrder(const Model& model) {
  for (int stage = 0; stage < model.stages(); ++stage) {
    for (UnitId unit : model.units_of(stage)) evaluate.push_back(unit);
  }
  train = evaluate;
  for (int stage = model.stages() - 2; stage >= 1; --stage) {
    for (UnitId unit : model.units_of(stage)) train.push_back(unit);
  }
}

StepOutcome train_step(const StepContext& c, std::span<const Batch> micro_batches,
                       const StepOptions& options) {
  HEADRACE_CHECK(int64_t(micro_batches.size()) <= c.memory.shape().grad_accum,
                 "more micro-batches than planned");
  int64_t counted = 0;
  for (const Batch& batch : micro_batches) counted += batch.counted();
  if (counted == 0) return {.loss = 0, .grad_norm = 0, .skipped = true, .counted = 0};

  const auto count = int64_t(micro_batches.size());
  c.engine.expect(c.order.train);
  upload(c, micro_batches);
  forward(c, count, true);
  loss(c, count, counted);
  backward(c, count);
  const StepResult result = c.engine.step(options);
  return {.loss = download_loss(c) / double(counted),
          .grad_norm = result.grad_norm,
          .skipped = result.skipped,
          .counted = counted};
}

double evaluate(const StepContext& c, std::span<const Batch> micro_batches) {
  const auto count = int64_t(micro_batches.size());
  c.engine.expect(c.order.evaluate);
  upload(c, micro_batches);
  forward(c, count, false);
  loss(c, count, 0);
  return download_loss(c);
}

void next_token_logits(const StepContext& c, const Batch& batch, int64_t row, float* logits) {
  ActivationArea& activations = c.engine.activations();
  const int head = c.model.stages() - 1;
  const uint32_t in = input_of(c, head, 0);
  c.engine.expect(c.order.evaluate);
  upload(c, {&batch, 1});
  forward(c, 1, false);
  GatheredStage gathered(c, head);
  const size_t row_bytes = c.model.activation_bytes(1, 1);
  c.model.logits(c.engine.compute(), gathered.weights(), 1, activations.fetch(in) + size_t(row) * row_bytes,
                 logits, c.memory.stage(head, 0));
  activations.done(in);
  activations.drop(in);
  gathered.release();
}

}  // namespace headrace
