// SPDX-License-Identifier: Apache-2.0
// The tiny models that the tests of this folder run.
#pragma once

#include "model/model.h"

namespace headrace::test {

/// Grouped-query attention with 2 query heads per kv head.
inline ModelConfig tiny_llama(bool tied) {
  return {.family = Family::llama,
          .layers = 2,
          .hidden = 24,
          .heads = 4,
          .kv_heads = 2,
          .ffn = 20,
          .vocab = 37,
          .max_seq = 16,
          .tied = tied};
}

inline ModelConfig tiny_gpt2(bool tied) {
  return {.family = Family::gpt2,
          .layers = 2,
          .hidden = 24,
          .heads = 3,
          .kv_heads = 3,
          .ffn = 40,
          .vocab = 37,
          .max_seq = 16,
          .tied = tied};
}

}  // namespace headrace::test
