// SPDX-License-Identifier: Apache-2.0
// A training of a few thousand parameters on a text that repeats, and what it tells.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "tests/temp_dir.h"
#include "tests/test_device.h"
#include "train/trainer.h"

namespace headrace::test {

/// 40 windows of 16 bytes of text that repeats, so that a tiny model learns it.
inline std::string text_file(const TempDir& dir) {
  const std::string path = dir.path() + "/text";
  std::ofstream file(path);
  for (int i = 0; i < 40; ++i) file << "in the beginning";
  file << "!";
  return path;
}

inline Config tiny_config(const TempDir& dir, Placement placement) {
  Config config;
  config.model = {.family = Family::llama,
                  .layers = 2,
                  .hidden = 48,
                  .heads = 4,
                  .kv_heads = 2,
                  .ffn = 64,
                  .vocab = 256,
                  .max_seq = 16};
  config.train_data.paths = {text_file(dir)};
  config.valid_data.paths = config.train_data.paths;
  config.seq_len = 16;
  config.train = {
      .steps = 8, .micro_batch = 2, .grad_accum = 2, .seed = 3, .eval_every = 0, .eval_batches = 4};
  config.optimizer.adam.lr = 3e-3;
  config.optimizer.warmup_steps = 2;
  config.engine.device = kTestDevice;
  config.engine.placement = placement;
  config.engine.nvme.paths = {dir.path()};
  config.checkpoint_dir = dir.path() + "/saved";
  config.log_dir = dir.path();
  return config;
}

inline constexpr Placement kNvme{Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme};
inline constexpr Placement kDevice{Tier::device, Tier::device, Tier::device, {}};

struct Record {
  std::vector<double> losses, rates;
  std::vector<std::string> warnings;
  TrainerEvents events() {
    return {.on_step = [this](const StepMetrics& m) { losses.push_back(m.loss), rates.push_back(m.lr); },
            .on_warning = [this](const std::string& line) { warnings.push_back(line); }};
  }
};

}  // namespace headrace::test
