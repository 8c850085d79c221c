// SPDX-License-Identifier: Apache-2.0
// A training run from its configuration to its saved result: data, model, engine, steps, evaluation, metrics,
// saved runs. The library's first client: it uses only include/headrace, the model, the data and the saved
// runs. Reports through callbacks; prints nothing. One thread.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "train/config.h"

namespace headrace {

/// One optimizer step's line of metrics.jsonl ("ev": "train").
struct StepMetrics {
  uint64_t step = 0;  ///< attempted steps so far, 1-based
  uint64_t tokens = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  bool skipped = false;
  uint64_t skipped_steps = 0;
  double step_ms = 0, tokens_per_s = 0;
  Stats delta;  ///< of this step; peaks are of the run
  uint64_t peak_rss_bytes = 0;
};

struct EvalMetrics {
  uint64_t step = 0;
  double loss = 0;  ///< mean over counted targets, nats
  uint64_t tokens = 0;
};

struct TrainerEvents {
  std::function<void(const StepMetrics&)> on_step;  ///< every step
  std::function<void(const EvalMetrics&)> on_eval;
  std::function<void(const std::string& folder, uint64_t step)> on_saved;
  std::function<void(const std::string&)> on_notice;   ///< one line
  std::function<void(const std::string&)> on_warning;  ///< one line
  std::function<bool()> stop_requested;  ///< asked between steps and validation batches: save, then end
};

/// Sizes the engine for this run (workspace, activation checkpoints) without allocating anything.
EngineOptions engine_options_for(const Config& config);
Plan plan_run(const Config& config);

struct RunSummary {
  uint64_t step = 0;
  std::optional<double> train_loss, valid_loss;
  std::string saved_folder;
  Stats stats;
  double seconds = 0;
  uint64_t trained_tokens = 0;
};

class Trainer {
 public:
  /// `config_toml` is the resolved configuration's text, stored in saved runs. Holds config.checkpoint_dir
  /// for its life: throws ConfigError ("checkpoint.dir") when another training does, or when it is a saved
  /// run itself.
  Trainer(Config config, std::string config_toml, TrainerEvents events);
  ~Trainer();
  /// Continues from the newest saved run; false (and nothing changed) when there is none, which is a notice
  /// when saved runs of an earlier training were set aside there.
  bool resume();
  /// Trains to config.train.steps, saves, evaluates. What fails between two updates (data, evaluation, an
  /// event) is thrown as an Error that tells where all steps so far were saved, with the failure nested in
  /// it.
  RunSummary run();
  [[nodiscard]] const Plan& plan() const;
  [[nodiscard]] std::string engine_description() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Continues `prompt` with up to max_new_tokens tokens sampled at `temperature` (0: greedy) from a saved
/// run's model, calling on_token for each; it returns whether to go on. Throws ConfigError ("model") when
/// `config` is of another model. Recomputes the window for every token
/// (no key/value cache).
void generate(const Config& config, const std::string& run_folder, std::span<const int32_t> prompt,
              int64_t max_new_tokens, double temperature, uint64_t seed,
              const std::function<bool(int32_t)>& on_token);

}  // namespace headrace
