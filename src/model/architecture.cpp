// SPDX-License-Identifier: Apache-2.0
#include "model/architecture.h"

#include <fmt/format.h>

#include <cmath>

#include "headrace/error.h"

namespace headrace {
namespace {

/// Extents above this are refused, so that the product of any two still fits 64 bits with room for bytes.
constexpr int64_t kMaxExtent = (int64_t(1) << 28) - 1;

void check_extents(const ModelConfig& c) {
  const struct {
    const char* key;
    int64_t value;
  } extents[] = {{"layers", c.layers}, {"hidden", c.hidden}, {"heads", c.heads},    {"kv_heads", c.kv_heads},
                 {"ffn", c.ffn},       {"vocab", c.vocab},   {"max_seq", c.max_seq}};
  for (const auto& [key, value] : extents) {
    if (value >= 1 && value <= kMaxExtent) continue;
    throw ConfigError(fmt::format("model.{}", key), fmt::format("{} is not in 1..{}", value, kMaxExtent));
  }
}

void check_heads(const ModelConfig& c) {
  if (c.hidden % c.heads != 0)
    throw ConfigError("model.heads", fmt::format("{} heads do not divide hidden = {}", c.heads, c.hidden));
  if (c.heads % c.kv_heads != 0)
    throw ConfigError("model.kv_heads",
                      fmt::format("{} kv heads do not divide {} heads", c.kv_heads, c.heads));
  if (c.family == Family::gpt2 && c.kv_heads != c.heads)
    throw ConfigError("model.kv_heads",
                      fmt::format("gpt2 has one kv head per head: {} instead of {}", c.heads, c.kv_heads));
  if (c.family == Family::llama && c.hidden / c.heads % 2 != 0)
    throw ConfigError("model.heads",
                      fmt::format("rotary positions need an even head size, this is {} / {} = {}", c.hidden,
                                  c.heads, c.hidden / c.heads));
}

}  // namespace

void check_model(const ModelConfig& config) {
  check_extents(config);
  check_heads(config);
  if (!(config.rope_theta > 0) || !std::isfinite(config.rope_theta))
    throw ConfigError("model.rope_theta", "not a positive number");
  if (!(config.norm_eps > 0) || !std::isfinite(config.norm_eps))
    throw ConfigError("model.norm_eps", "not a positive number");
}

Architecture architecture_of(const ModelConfig& config) {
  check_model(config);
  if (config.family == Family::llama)  // Touvron et al. 2023
    return {config, NormKind::rms, ActivationKind::swiglu, false, true, false};
  // Radford et al. 2019
  return {config, NormKind::layer, ActivationKind::gelu, true, false, true};
}

}  // namespace headrace
