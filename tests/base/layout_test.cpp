// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "headrace/engine.h"
#include "headrace/error.h"

namespace headrace {
namespace {

TEST(Layout, SegmentsStartAtMultiplesOf64AndGapsAreNotCounted) {
  const UnitLayout layout =
      layout_of({"u", {{"a", {3, 5}, true}, {"b", {64}, false}, {"c", {65}, true}, {"d", {1}, true}}});
  ASSERT_EQ(layout.segments.size(), 4u);
  // 15 -> 64; 64 -> 64; 65 -> 128; 1 -> 64.
  EXPECT_EQ(layout.segments[0].offset, 0);
  EXPECT_EQ(layout.segments[1].offset, 64);
  EXPECT_EQ(layout.segments[2].offset, 128);
  EXPECT_EQ(layout.segments[3].offset, 256);
  EXPECT_EQ(layout.segments[0].elems, 15);
  EXPECT_EQ(layout.segments[2].elems, 65);
  EXPECT_EQ(layout.elems, 320);
  EXPECT_EQ(layout.param_count, 15 + 64 + 65 + 1);
  EXPECT_TRUE(layout.segments[0].weight_decay);
  EXPECT_FALSE(layout.segments[1].weight_decay);
}

TEST(Layout, ScalarsHaveOneElementAndEmptyShapesNone) {
  const UnitLayout layout =
      layout_of({"u", {{"scalar", {}, true}, {"empty", {4, 0}, true}, {"end", {2}, true}}});
  EXPECT_EQ(layout.segments[0].elems, 1);
  EXPECT_EQ(layout.segments[1].elems, 0);
  EXPECT_EQ(layout.segments[2].offset, 64);
  EXPECT_EQ(layout.elems, 128);
  EXPECT_EQ(layout_of({"none", {}}).elems, 0);
}

TEST(Layout, ANameTwiceIsAnErrorThatNamesUnitAndSegment) {
  try {
    layout_of({"layer.3", {{"w", {1}, true}, {"w", {2}, true}}});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("layer.3"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("'w'"), std::string::npos);
  }
}

TEST(Layout, ShapesBeyond64BitsAreErrors) {
  constexpr int64_t kHalf = int64_t(1) << 32;
  EXPECT_THROW(layout_of({"u", {{"a", {kHalf, kHalf}, true}}}), ConfigError);
  EXPECT_THROW(layout_of({"u", {{"a", {INT64_MAX}, true}}}), ConfigError);
  EXPECT_THROW(layout_of({"u", {{"a", {kHalf, kHalf / 4}, true}, {"b", {kHalf, kHalf / 4}, true}}}),
               ConfigError);
  EXPECT_THROW(layout_of({"u", {{"a", {-1}, true}}}), ConfigError);
  // An extent of zero makes it empty, whatever the others are.
  EXPECT_EQ(layout_of({"u", {{"a", {kHalf, kHalf, 0}, true}}}).elems, 0);
}

}  // namespace
}  // namespace headrace
