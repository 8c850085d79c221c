// SPDX-License-Identifier: Apache-2.0
// Sampling from a saved run through the same engine, so that a model larger than memory generates too. The
// whole window is computed for every token: causal attention makes what stands right of the last token
// irrelevant.
#include <algorithm>
#include <cmath>
#include <random>

#include "checkpoint/saved_run.h"
#include "headrace/error.h"
#include "train/saving.h"
#include "train/sizing.h"
#include "train/step.h"
#include "train/trainer.h"

namespace headrace {
namespace {

Config for_generation(Config config) {
  config.train.micro_batch = 1;
  config.train.grad_accum = 1;
  return config;
}

class Generator {
 public:
  Generator(const Config& config, const SavedRun& run)
      : config_(for_generation(config)),
        model_(make_model(config_.model, config_.engine.precision, device_kind(config_))),
        sizing_(size_with_logits()),
        memory_(*model_, sizing_.shape),
        order_(*model_),
        engine_(sizing_.engine, {model_->units().begin(), model_->units().end()}),
        logits_(size_t(config_.model.vocab)) {
    memory_.place(engine_.workspace());
    load_run(engine_, run);
    batch_.resize(1, config_.seq_len);
  }

  /// Logits of the token that follows `tokens` (the last seq_len of them).
  std::span<const float> logits_after(std::span<const int32_t> tokens) {
    const auto seq = size_t(config_.seq_len);
    const auto window = tokens.last(std::min(tokens.size(), seq));
    std::fill(batch_.tokens.begin(), batch_.tokens.end(), 0);
    std::copy(window.begin(), window.end(), batch_.tokens.begin());
    float* on_device = reinterpret_cast<float*>(engine_.workspace() + memory_.bytes());
    next_token_logits({engine_, *model_, memory_, order_}, batch_, int64_t(window.size()) - 1, on_device);
    engine_.compute().copy(logits_.data(), on_device, logits_.size() * sizeof(float));
    engine_.compute().synchronize();
    return logits_;
  }

 private:
  RunSizing size_with_logits() {
    RunSizing sizing = size_run(config_, *model_);
    sizing.engine.workspace_bytes += size_t(config_.model.vocab) * sizeof(float);
    return sizing;
  }

  Config config_;
  std::unique_ptr<Model> model_;
  RunSizing sizing_;
  StepMemory memory_;
  GatherOrder order_;
  Engine engine_;
  std::vector<float> logits_;
  Batch batch_;
};

int32_t sample(std::span<const float> logits, double temperature, std::mt19937_64& random) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) return int32_t(largest - logits.begin());
  std::vector<double> weights(logits.size());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    weights[i] = std::exp((double(logits[i]) - double(*largest)) / temperature);
    total += weights[i];
  }
  double at = std::uniform_real_distribution<double>(0, total)(random);
  for (size_t i = 0; i < weights.size(); ++i) {
    at -= weights[i];
    if (at < 0) return int32_t(i);
  }
  return int32_t(largest - logits.begin());
}

}  // namespace

void generate(const Config& config, const std::string& run_folder, std::span<const int32_t> prompt,
              int64_t max_new_tokens, double temperature, uint64_t seed,
              const std::function<bool(int32_t)>& on_token) {
  if (prompt.empty()) throw ConfigError("--prompt", "at least one token is needed");
  for (int32_t token : prompt) {
    if (token < 0 || token >= config.model.vocab)
      throw ConfigError("--prompt", "a token is beyond model.vocab");
  }
  const SavedRun run = SavedRun::open(run_folder);
  check_same_model(run, config.model);
  Generator generator(config, run);
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < max_new_tokens; ++i) {
    tokens.push_back(sample(generator.logits_after(tokens), temperature, random));
    if (!on_token(tokens.back())) return;
  }
}

}  // namespace headrace
