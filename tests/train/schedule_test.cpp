// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headrace {
namespace {

OptimizerOptions options(Schedule schedule, uint64_t warmup) {
  OptimizerOptions out;
  out.adam.lr = 1;
  out.schedule = schedule;
  out.warmup_steps = warmup;
  out.min_lr_fraction = 0.1;
  return out;
}

// (1 + cos(k pi / 6)) / 2 by hand: k = 0: 1, 1: (2 + sqrt 3) / 4, 2: 3/4, 3: 1/2, 4: 1/4, 5: (2 - sqrt 3)
// / 4.
TEST(Schedule, CosineAfterWarmUp) {
  const double expected[] = {.25, .5, .75, 1, 1, .939711, .775, .55, .325, .160289};
  for (uint64_t step = 0; step < 10; ++step) {
    EXPECT_NEAR(learning_rate(options(Schedule::cosine, 4), step, 10), expected[step], 5e-7) << step;
  }
  EXPECT_NEAR(learning_rate(options(Schedule::cosine, 4), 10, 10), .1, 1e-15);
}

TEST(Schedule, StaysAtTheFinalFractionBeyondTheEnd) {
  for (const Schedule schedule : {Schedule::cosine, Schedule::linear}) {
    EXPECT_NEAR(learning_rate(options(schedule, 4), 25, 10), .1, 1e-15);
  }
}

TEST(Schedule, LinearAfterWarmUp) {
  const double expected[] = {.5, 1, 1, .775, .55, .325};
  for (uint64_t step = 0; step < 6; ++step) {
    EXPECT_NEAR(learning_rate(options(Schedule::linear, 2), step, 6), expected[step], 1e-15) << step;
  }
}

TEST(Schedule, ConstantAfterWarmUp) {
  const double expected[] = {.5, 1, 1, 1};
  for (uint64_t step = 0; step < 4; ++step) {
    EXPECT_EQ(learning_rate(options(Schedule::constant, 2), step, 4), expected[step]) << step;
  }
}

TEST(Schedule, WarmUpOfNothingOneAllAndMoreDividesByNothing) {
  for (const Schedule schedule : {Schedule::cosine, Schedule::linear, Schedule::constant}) {
    EXPECT_EQ(learning_rate(options(schedule, 0), 0, 10), 1.0);
    EXPECT_EQ(learning_rate(options(schedule, 1), 0, 10), 1.0);
    EXPECT_EQ(learning_rate(options(schedule, 1), 1, 10), 1.0);
    EXPECT_EQ(learning_rate(options(schedule, 10), 0, 10), .1);
    EXPECT_EQ(learning_rate(options(schedule, 10), 9, 10), 1.0);
    EXPECT_EQ(learning_rate(options(schedule, 20), 9, 10), .5);
    for (const uint64_t warmup : {0, 1, 10, 20}) {
      for (const uint64_t total : {0, 1, 10}) {
        for (uint64_t step = 0; step <= 21; ++step) {
          const double lr = learning_rate(options(schedule, warmup), step, total);
          EXPECT_TRUE(std::isfinite(lr) && lr > 0 && lr <= 1) << warmup << ' ' << total << ' ' << step;
        }
      }
    }
  }
}

TEST(Schedule, ScalesWithTheLearningRate) {
  OptimizerOptions scaled = options(Schedule::cosine, 4);
  scaled.adam.lr = 3e-4;
  EXPECT_NEAR(learning_rate(scaled, 6, 10), 3e-4 * .775, 1e-18);
}

// Cut anywhere, the rest asks the same pure function: no state can be lost.
TEST(Schedule, IsIdenticalWhenCutAtEveryStep) {
  const OptimizerOptions chosen = options(Schedule::cosine, 4);
  for (uint64_t cut = 0; cut < 10; ++cut) {
    const OptimizerOptions resumed = chosen;
    for (uint64_t step = cut; step < 10; ++step) {
      EXPECT_EQ(learning_rate(resumed, step, 10), learning_rate(chosen, step, 10));
    }
  }
}

}  // namespace
}  // namespace headrace
