// SPDX-License-Identifier: Apache-2.0
// The configuration of a training run, as plain values with their defaults. The command line fills it from
// TOML (cli/config_file.h), where each key's documentation stands.
#pragma once

#include <cstdint>
#include <string>

#include "data/token_source.h"
#include "headrace/engine.h"
#include "model/model.h"

namespace headrace {

enum class Schedule : uint8_t { cosine, linear, constant };
/// What happens to the intermediates of a unit's forward: kept for backward when the device budget holds all
/// of them, or always computed again from the activation checkpoint. Same bits.
enum class Recompute : uint8_t { automatic, always };

struct TrainOptions {
  uint64_t steps = 100;
  int64_t micro_batch = 4;  ///< sequences
  int64_t grad_accum = 1;   ///< micro-batches per step
  uint64_t seed = 1;
  uint64_t eval_every = 0;  ///< steps; 0: only at the end
  uint64_t eval_batches = 16;
  uint64_t log_every = 10;
};

struct OptimizerOptions {
  adam::Options adam{.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  double grad_clip = 1.0;
  Schedule schedule = Schedule::cosine;
  uint64_t warmup_steps = 0;
  double min_lr_fraction = 0.1;
  uint64_t max_skipped_steps = 10;  ///< in a row, then the run stops
};

struct Config {
  ModelConfig model;
  DataFiles train_data;
  DataFiles valid_data{.paths = {}, .key = "data.valid"};
  int64_t seq_len = 256;
  TrainOptions train;
  OptimizerOptions optimizer;
  EngineOptions engine;  ///< precision, device, placement, budgets, nvme; sizes are filled by the trainer
  Recompute recompute = Recompute::automatic;
  std::string checkpoint_dir = "runs/checkpoints";
  uint64_t checkpoint_every = 0;  ///< steps; 0: only at the end
  unsigned checkpoint_keep = 3;   ///< newest saved runs kept; 0: all
  std::string log_dir = "runs";
};

}  // namespace headrace
