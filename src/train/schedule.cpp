// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace headrace {

double learning_rate(const OptimizerOptions& options, uint64_t step, uint64_t total) {
  const double lr = options.adam.lr;
  const uint64_t warmup = options.warmup_steps;
  if (step < warmup) return lr * (double(step) + 1) / double(warmup);
  if (options.schedule == Schedule::constant) return lr;

  const double p = total > warmup ? std::min(1.0, double(step - warmup) / double(total - warmup)) : 1.0;
  const double f = options.min_lr_fraction;
  if (options.schedule == Schedule::linear) return lr * (1 - (1 - f) * p);
  return lr * (f + (1 - f) * (1 + std::cos(std::numbers::pi * p)) / 2);
}

}  // namespace headrace
