// SPDX-License-Identifier: Apache-2.0
#include "cli/suggestion.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace::cli {
namespace {

TEST(EditDistance, CountsEachKindOfEditOnce) {
  EXPECT_EQ(edit_distance("layers", "layers"), 0u);
  EXPECT_EQ(edit_distance("layrs", "layers"), 1u);    // insertion
  EXPECT_EQ(edit_distance("layerss", "layers"), 1u);  // deletion
  EXPECT_EQ(edit_distance("lazers", "layers"), 1u);   // substitution
  EXPECT_EQ(edit_distance("alyers", "layers"), 1u);   // swap of neighbours
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);  // optimal string alignment edits no substring twice
}

TEST(Nearest, TakesTheClosestWithinReach) {
  constexpr std::array<std::string_view, 4> kWords = {"seed", "steps", "device", "host"};
  EXPECT_EQ(nearest("step", kWords), "steps");
  EXPECT_EQ(nearest("devcie", kWords), "device");
  EXPECT_EQ(nearest("voice", kWords), std::nullopt);  // three edits
  EXPECT_EQ(nearest("hats", kWords), std::nullopt);   // short words: one edit only
}

}  // namespace
}  // namespace headrace::cli
