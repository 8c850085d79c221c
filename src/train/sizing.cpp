// SPDX-License-Identifier: Apache-2.0
#include "train/sizing.h"

#include "train/step.h"
#include "train/trainer.h"

namespace headrace {
namespace {

RunSizing sized(const Config& config, const Model& model, bool keep_saved) {
  RunSizing sizing{.engine = config.engine,
                   .shape = {.micro_batch = config.train.micro_batch,
                             .seq_len = config.seq_len,
                             .grad_accum = config.train.grad_accum,
                             .keep_saved = keep_saved}};
  sizing.engine.workspace_bytes = StepMemory(model, sizing.shape).bytes();
  sizing.engine.activation_bytes = model.activation_bytes(config.train.micro_batch, config.seq_len);
  sizing.engine.activation_count = activation_count(model.stages(), config.train.grad_accum);
  return sizing;
}

}  // namespace

DeviceKind device_kind(const Config& config) {
  return resolve_device(config.engine.device);
}

/// Keeping intermediates costs memory that grows with depth, so it is only done when activation checkpoints
/// are meant to stay on the device and the budget holds everything.
RunSizing size_run(const Config& config, const Model& model) {
  if (config.recompute == Recompute::automatic && config.engine.placement.activations == Tier::device) {
    RunSizing keep = sized(config, model, true);
    if (make_plan(keep.engine, model.units()).total(Tier::device) <= config.engine.device_memory) return keep;
  }
  return sized(config, model, false);
}

EngineOptions engine_options_for(const Config& config) {
  const auto model = make_model(config.model, config.engine.precision, device_kind(config));
  return size_run(config, *model).engine;
}

Plan plan_run(const Config& config) {
  const auto model = make_model(config.model, config.engine.precision, device_kind(config));
  return make_plan(size_run(config, *model).engine, model->units());
}

}  // namespace headrace
