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

/// The key whose number makes the workspace what it is. Halving the micro-batches or the sequences in each
/// leaves a part that only depends on the sequence's length and the number of threads.
std::string workspace_key(const Model& model, const StepShape& shape) {
  const size_t bytes = StepMemory(model, shape).bytes();
  const auto worth_halving = [&](int64_t StepShape::*number) {
    StepShape half = shape;
    half.*number /= 2;
    return half.*number > 0 && 4 * (bytes - StepMemory(model, half).bytes()) >= bytes;
  };
  const bool rows = worth_halving(&StepShape::micro_batch);
  const bool batches = worth_halving(&StepShape::grad_accum);
  if (batches && (!rows || shape.grad_accum > shape.micro_batch)) return "train.grad_accum";
  return rows ? "train.micro_batch" : "data.seq_len";
}

/// The engine knows its workspace as bytes only; what they are for is known here.
void name_keys(Plan& plan, const Model& model, const StepShape& shape) {
  for (PlanItem& item : plan.items) {
    if (item.what == "workspace") {
      item.key = workspace_key(model, shape);
    } else if (item.key == "train.micro_batch" && shape.micro_batch == 1) {
      item.key = "data.seq_len";
    }
  }
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
  const RunSizing sizing = size_run(config, *model);
  Plan plan = make_plan(sizing.engine, model->units());
  name_keys(plan, *model, sizing.shape);
  return plan;
}

}  // namespace headrace
