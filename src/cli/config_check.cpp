// SPDX-License-Identifier: Apache-2.0
// Combinations of keys that cannot work and that can be seen without a model or an engine.
#include <fmt/format.h>

#include <algorithm>

#include "cli/config_file.h"

namespace headrace::cli {
namespace {

void check_nvme(const EngineOptions& engine) {
  const Placement& placement = engine.placement;
  const auto& paths = engine.nvme.paths;
  if (paths.empty()) {
    const char* user = placement.weights == Tier::nvme       ? "offload.weights"
                       : placement.optimizer == Tier::nvme   ? "offload.optimizer"
                       : placement.activations == Tier::nvme ? "offload.activations"
                       : placement.gradients == Tier::nvme   ? "offload.gradients"
                                                             : nullptr;
    if (user) {
      throw ConfigError("nvme.paths",
                        fmt::format("{} = \"nvme\" needs at least one folder in nvme.paths", user));
    }
  }
  for (auto path = paths.begin(); path != paths.end(); ++path) {
    if (path->empty()) throw ConfigError("nvme.paths", "holds an empty path");
    if (std::find(paths.begin(), path, *path) != path) {
      throw ConfigError("nvme.paths", fmt::format("names {} twice", *path));
    }
  }
}

void check_shape(const Config& config) {
  const ModelConfig& model = config.model;
  if (config.seq_len > model.max_seq) {
    throw ConfigError("data.seq_len",
                      fmt::format("{} is longer than model.max_seq = {}", config.seq_len, model.max_seq));
  }
  if (model.family == Family::gpt2 && model.kv_heads != model.heads) {
    throw ConfigError(
        "model.kv_heads",
        fmt::format("{} differs from model.heads = {}, but gpt2 has one key/value head for each "
                    "query head; leave it out",
                    model.kv_heads, model.heads));
  }
  if (config.train_data.format == TokenFormat::text && model.vocab < 256) {
    throw ConfigError(
        "model.vocab",
        fmt::format("{} is too small for data.format = \"text\": a byte has 256 values", model.vocab));
  }
}

}  // namespace

void check_config(const Config& config) {
  check_nvme(config.engine);
  check_shape(config);
}

}  // namespace headrace::cli
