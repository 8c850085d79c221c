// SPDX-License-Identifier: Apache-2.0
// The learning rate of a step: linear warm-up, then cosine, linear or constant. A pure function of the step,
// so that a resumed run continues it exactly.
#pragma once

#include "train/config.h"

namespace headrace {

/// Learning rate of 0-based optimizer step `step` of `total`.
/// warm-up: lr (step + 1) / warmup for step < warmup; after it, with p = (step - warmup) / (total - warmup)
/// in [0, 1]: cosine: lr (f + (1 - f) (1 + cos(pi p)) / 2), linear: lr (1 - (1 - f) p), f = min_lr_fraction.
/// warmup 0 or >= total divides by nothing; p is 1 from step `total` on, and after a warm-up >= total.
double learning_rate(const OptimizerOptions& options, uint64_t step, uint64_t total);

}  // namespace headrace
