// SPDX-License-Identifier: Apache-2.0
// What tells one transformer family from another: the kinds of its parts and the widths that follow from the
// configuration. Both families are pre-norm: h = x + out(attention(qkv(norm(x)))), y = h +
// down(act(up(norm(h)))).
#pragma once

#include "model/model.h"

namespace headrace {

enum class NormKind : uint8_t { rms, layer };
enum class ActivationKind : uint8_t { swiglu, gelu };

struct Architecture {
  ModelConfig config;
  NormKind norm;
  ActivationKind activation;
  bool biases;             ///< of the linear layers
  bool rotary;             ///< positions are rotations of q and k
  bool learned_positions;  ///< positions are a table beside the token embedding

  [[nodiscard]] int64_t head_dim() const { return config.hidden / config.heads; }
  /// Columns of the fused projection: q heads, k heads, v heads.
  [[nodiscard]] int64_t qkv_cols() const { return (config.heads + 2 * config.kv_heads) * head_dim(); }
  /// Columns before the activation: gate and up for SwiGLU.
  [[nodiscard]] int64_t up_cols() const {
    return activation == ActivationKind::swiglu ? 2 * config.ffn : config.ffn;
  }
};

/// Checks the configuration (check_model) and looks its family up.
Architecture architecture_of(const ModelConfig& config);

}  // namespace headrace
