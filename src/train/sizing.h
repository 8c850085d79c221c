// SPDX-License-Identifier: Apache-2.0
// From a run's configuration to the engine's options: which device memory the trainer itself needs, and
// whether the device budget allows keeping forward's intermediates instead of recomputing them.
#pragma once

#include "train/config.h"
#include "train/memory.h"

namespace headrace {

struct RunSizing {
  EngineOptions engine;
  StepShape shape;
};
RunSizing size_run(const Config& config, const Model& model);

/// The device kind that the run's model is made for: the engine's (resolve_device).
DeviceKind device_kind(const Config& config);

}  // namespace headrace
