// SPDX-License-Identifier: Apache-2.0
// A model, an engine and the trainer's memory, put together by hand for tests of single steps.
#pragma once

#include <memory>
#include <vector>

#include "tests/engine_state.h"
#include "tests/test_device.h"
#include "train/saving.h"
#include "train/step.h"

namespace headrace::test {

struct RigOptions {
  ModelConfig model;
  StepShape shape;
  EngineOptions engine;
  uint64_t seed = 1;
};

inline EngineOptions rig_engine(const Model& model, const RigOptions& o) {
  EngineOptions engine = o.engine;
  engine.device = kTestDevice;
  engine.workspace_bytes = StepMemory(model, o.shape).bytes();
  engine.activation_bytes = model.activation_bytes(o.shape.micro_batch, o.shape.seq_len);
  engine.activation_count = activation_count(model.stages(), o.shape.grad_accum);
  return engine;
}

class StepRig {
 public:
  explicit StepRig(const RigOptions& o)
      : model(make_model(o.model, o.engine.precision, kTestDeviceKind)),
        memory(*model, o.shape),
        order(*model),
        engine(rig_engine(*model, o), {model->units().begin(), model->units().end()}) {
    memory.place(engine.workspace());
    initialize_run(engine, *model, o.seed);
  }
  [[nodiscard]] StepContext context() { return {engine, *model, memory, order}; }

  std::vector<std::byte> state() { return state_bytes(engine); }

  std::unique_ptr<Model> model;
  StepMemory memory;
  GatherOrder order;
  Engine engine;
};

inline EngineOptions roomy_engine(DType precision, Placement placement, const std::string& path) {
  EngineOptions engine;
  engine.precision = precision;
  engine.device_memory = engine.host_memory = 512u << 20;
  engine.placement = placement;
  if (!path.empty()) engine.nvme.paths = {path};
  return engine;
}

}  // namespace headrace::test
