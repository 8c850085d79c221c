// SPDX-License-Identifier: Apache-2.0
// Known model shapes, and the defaults of model keys that follow from other keys.
#include <array>

#include "cli/config_key.h"

namespace headrace::cli {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"none",     "demo",       "gpt2-124m",
                                                    "llama-1b", "llama-2-7b", "llama-3-8b"};

ModelConfig shape(size_t index) {
  switch (index) {
    case 2:
      return {.family = Family::gpt2,
              .layers = 12,
              .hidden = 768,
              .heads = 12,
              .kv_heads = 12,
              .ffn = 3072,
              .vocab = 50257,
              .max_seq = 1024,
              .tied = true};
    case 3:
      return {.layers = 22,
              .hidden = 2048,
              .heads = 32,
              .kv_heads = 4,
              .ffn = 5632,
              .vocab = 32000,
              .max_seq = 2048};
    case 4:
      return {.layers = 32,
              .hidden = 4096,
              .heads = 32,
              .kv_heads = 32,
              .ffn = 11008,
              .vocab = 32000,
              .max_seq = 4096};
    case 5:
      return {.layers = 32,
              .hidden = 4096,
              .heads = 32,
              .kv_heads = 8,
              .ffn = 14336,
              .vocab = 128256,
              .max_seq = 8192,
              .rope_theta = 500000};
    default:
      return {
          .layers = 6, .hidden = 256, .heads = 8, .kv_heads = 4, .ffn = 704, .vocab = 256, .max_seq = 256};
  }
}

}  // namespace

std::span<const std::string_view> preset_names() {
  return kNames;
}

void apply_preset(std::string_view name, Config& config) {
  for (size_t i = 1; i < kNames.size(); ++i) {
    if (kNames[i] == name) config.model = shape(i);
  }
}

Config unset_config() {
  Config config;
  config.model.kv_heads = config.model.ffn = config.model.max_seq = 0;
  return config;
}

void resolve_derived(Config& config) {
  ModelConfig& model = config.model;
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.max_seq == 0) model.max_seq = config.seq_len;
  if (model.ffn == 0) {
    // 8/3 of the width gives SwiGLU's three matrices the size of the usual two (Shazeer 2020).
    model.ffn = model.family == Family::gpt2 ? 4 * model.hidden : (model.hidden * 8 / 3 + 63) / 64 * 64;
  }
}

}  // namespace headrace::cli
