// SPDX-License-Identifier: Apache-2.0
#include "bench/quartiles.h"

#include <gtest/gtest.h>

namespace headrace::bench {
namespace {

TEST(Quartiles, OfAnOddNumberAreValues) {
  const Quartiles q = quartiles_of({9, 1, 7, 3, 5});
  EXPECT_DOUBLE_EQ(q.low, 3);
  EXPECT_DOUBLE_EQ(q.median, 5);
  EXPECT_DOUBLE_EQ(q.high, 7);
}

TEST(Quartiles, OfAnEvenNumberLieBetweenValues) {
  // Sorted 1 2 4 8: quantile q at index 3 q, so 0.75, 1.5 and 2.25.
  const Quartiles q = quartiles_of({8, 1, 4, 2});
  EXPECT_DOUBLE_EQ(q.low, 1.75);
  EXPECT_DOUBLE_EQ(q.median, 3);
  EXPECT_DOUBLE_EQ(q.high, 5);
}

TEST(Quartiles, OfOneValueAreThatValue) {
  const Quartiles q = quartiles_of({2.5});
  EXPECT_DOUBLE_EQ(q.low, 2.5);
  EXPECT_DOUBLE_EQ(q.median, 2.5);
  EXPECT_DOUBLE_EQ(q.high, 2.5);
}

TEST(Quartiles, RatiosAreTakenWithinARound) {
  // Each round's ratios are 2, 2 and 4.
  const double slow[] = {2, 4, 16}, fast[] = {1, 2, 4};
  const Quartiles q = paired_ratio(slow, fast);
  EXPECT_DOUBLE_EQ(q.low, 2);
  EXPECT_DOUBLE_EQ(q.median, 2);
  EXPECT_DOUBLE_EQ(q.high, 3);
  // A machine whose speed drifts a hundredfold changes no ratio.
  const double drifting[] = {10, 1, 100}, twice[] = {20, 2, 200};
  EXPECT_DOUBLE_EQ(paired_ratio(twice, drifting).low, 2);
  EXPECT_DOUBLE_EQ(paired_ratio(twice, drifting).high, 2);
}

TEST(Quartiles, AreWideBeyondATenthOfTheMedian) {
  EXPECT_FALSE(wide({.low = 9.6, .median = 10, .high = 10.5}));
  EXPECT_TRUE(wide({.low = 9.4, .median = 10, .high = 10.5}));
}

}  // namespace
}  // namespace headrace::bench
