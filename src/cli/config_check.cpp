// SPDX-License-Identifier: Apache-2.0
// Combinations of keys that cannot work and that can be seen without a model or an engine.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "cli/config_file.h"

namespace headrace::cli {
namespace {

using PathIterator = std::vector<std::string>::const_iterator;

/// What exists must be a folder, and not one of those named before in another spelling. What does not exist
/// is told when it is used: a plan may be made on another machine.
void check_folder(PathIterator first, PathIterator path) {
  struct stat status {};
  if (::stat(path->c_str(), &status) != 0) return;
  if (!S_ISDIR(status.st_mode)) throw ConfigError("nvme.paths", fmt::format("{} is not a folder", *path));
  for (auto before = first; before != path; ++before) {
    struct stat other {};
    if (::stat(before->c_str(), &other) != 0) continue;
    if (other.st_dev == status.st_dev && other.st_ino == status.st_ino) {
      throw ConfigError("nvme.paths", fmt::format("{} and {} are the same folder", *before, *path));
    }
  }
}

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
    check_folder(paths.begin(), path);
  }
}

/// Far above what any machine holds and far below where sums of bytes would overflow 64 bits.
void check_size(const Config& config) {
  constexpr int64_t kMaxRows = int64_t(1) << 26;
  constexpr double kMaxBytes = double(uint64_t(1) << 60);
  const int64_t rows = config.train.micro_batch * config.seq_len;
  if (rows > kMaxRows) {
    throw ConfigError("train.micro_batch",
                      fmt::format("{} sequences of data.seq_len = {} are {} tokens, more than the {} that a "
                                  "micro-batch can have",
                                  config.train.micro_batch, config.seq_len, rows, kMaxRows));
  }
  const ModelConfig& model = config.model;
  const auto hidden = double(model.hidden), ffn = double(model.ffn), layers = double(model.layers);
  const double params = (2 * double(model.vocab) + double(model.max_seq)) * hidden +
                        layers * (4 * hidden * hidden + 3 * hidden * ffn);
  const double activations =
      double(rows) * (layers + 2) * (hidden * (16 + double(config.train.grad_accum)) + 4 * ffn) +
      double(rows) * double(config.seq_len) * double(model.heads);
  if (20 * params + 4 * activations > kMaxBytes) {
    throw ConfigError("model",
                      "needs more than 2^60 bytes with these model.layers, model.hidden, model.ffn, "
                      "train.micro_batch, train.grad_accum and data.seq_len");
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
  check_size(config);
  check_shape(config);
}

}  // namespace headrace::cli
