// SPDX-License-Identifier: Apache-2.0
#include "headrace/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace headrace {
namespace {

TEST(SplitMaster, HoldsEveryFiniteValueExactly) {
  // Every upper half with lower halves around the rounding boundary and at the ends.
  constexpr uint32_t kLower[] = {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu};
  for (uint32_t upper = 0; upper < 0x10000u; ++upper) {
    for (uint32_t lower : kLower) {
      const uint32_t bits = (upper << 16) | lower;
      if ((bits & 0x7f800000u) == 0x7f800000u) continue;  // infinity and NaN
      ASSERT_EQ(std::bit_cast<uint32_t>(merge_master(split_master(std::bit_cast<float>(bits)))), bits);
    }
  }
}

TEST(SplitMaster, HiIsTheNearestBf16) {
  EXPECT_EQ(to_float(split_master(1.0f).hi), 1.0f);
  // 1 + 2^-9 lies a quarter of a bf16 step (2^-7) above 1; 1 + 3 * 2^-9 three quarters.
  EXPECT_EQ(to_float(split_master(1.0f + 0x1p-9f).hi), 1.0f);
  EXPECT_EQ(to_float(split_master(1.0f + 0x3p-9f).hi), 1.0f + 0x1p-7f);
  EXPECT_EQ(to_float(split_master(-1.0f - 0x3p-9f).hi), -1.0f - 0x1p-7f);
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-8f)), 1.0f);            // tie, down to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);  // tie, up to even
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace headrace
