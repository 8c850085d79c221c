// SPDX-License-Identifier: Apache-2.0
// What step.cpp speaks in: a stage's weights while they are gathered, its gradients, and the step's inputs
// and loss on their way to and from the device.
#pragma once

#include <array>
#include <span>

#include "train/step.h"

namespace headrace {

constexpr size_t kMaxUnitsPerStage = 4;

/// The weights of a stage, from gather to release.
class GatheredStage {
 public:
  GatheredStage(const StepContext& c, int stage) : engine_(c.engine), units_(c.model.units_of(stage)) {
    for (size_t i = 0; i < units_.size(); ++i) weights_[i] = engine_.gather(units_[i]);
  }
  void release() {
    for (UnitId unit : units_) engine_.release(unit);
  }
  [[nodiscard]] StageWeights weights() const { return {weights_.data(), units_.size()}; }

 private:
  Engine& engine_;
  std::span<const UnitId> units_;
  std::array<WeightView, kMaxUnitsPerStage> weights_{};
};

/// The fp32 gradient accumulators of a stage.
class GradientsOfStage {
 public:
  GradientsOfStage(const StepContext& c, int stage) : engine_(c.engine), units_(c.model.units_of(stage)) {
    for (size_t i = 0; i < units_.size(); ++i) views_[i] = engine_.gradient(units_[i]);
  }
  [[nodiscard]] StageGradients views() const { return {views_.data(), units_.size()}; }
  /// The stage's own unit is complete; a tied embedding, named second by the head, goes on growing until
  /// stage 0.
  void reduce_scatter() { engine_.reduce_scatter(units_.front()); }

 private:
  Engine& engine_;
  std::span<const UnitId> units_;
  std::array<GradientView, kMaxUnitsPerStage> views_{};
};

/// Index of the activation checkpoint that is the input of `stage`.
inline uint32_t input_of(const StepContext& c, int stage, int64_t micro_batch) {
  return uint32_t(stage - 1) * uint32_t(c.memory.shape().grad_accum) + uint32_t(micro_batch);
}

/// Tokens and labels to the device; the loss starts at zero. The batches must stay until the step ends.
inline void upload(const StepContext& c, std::span<const Batch> micro_batches) {
  Stream& stream = c.engine.compute();
  for (size_t mb = 0; mb < micro_batches.size(); ++mb) {
    const Batch& batch = micro_batches[mb];
    stream.copy(c.memory.tokens(int64_t(mb)), batch.tokens.data(), batch.tokens.size() * sizeof(int32_t));
    stream.copy(c.memory.labels(int64_t(mb)), batch.labels.data(), batch.labels.size() * sizeof(int32_t));
  }
  stream.zero(c.memory.loss_sum(), sizeof(double));
}

inline double download_loss(const StepContext& c) {
  double loss_sum = 0;
  c.engine.compute().copy(&loss_sum, c.memory.loss_sum(), sizeof(double));
  c.engine.compute().synchronize();
  return loss_sum;
}

}  // namespace headrace
