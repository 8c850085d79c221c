// SPDX-License-Identifier: Apache-2.0
// Engine state to and from saved runs, tile by tile, whatever tier it lives on.
#pragma once

#include <string>

#include "checkpoint/saved_run.h"
#include "headrace/engine.h"
#include "model/model.h"

namespace headrace {

/// What makes a model this one and no other, as one line: compared before a run is continued.
std::string model_text(const ModelConfig& model);
/// Throws ConfigError ("model") when `run` is of another model, also where no tensor's shape tells.
void check_same_model(const SavedRun& run, const ModelConfig& model);
/// Every unit of the engine, in order; leaves the rest of the saved run to the caller.
void add_units(SavedRunWriter& writer, Engine& engine);
/// Writes every unit of the engine; returns the folder of the finished saved run.
std::string save_run(Engine& engine, const std::string& dir, const RunState& state,
                     const std::string& config_toml);
/// Fills every unit of the engine from `run`, which must match.
void load_run(Engine& engine, const SavedRun& run);
/// Fills every unit with its initial weights and zero moments.
void initialize_run(Engine& engine, const Model& model, uint64_t seed);

}  // namespace headrace
