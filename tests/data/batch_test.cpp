// SPDX-License-Identifier: Apache-2.0
#include "data/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using testing::ElementsAre;
constexpr int32_t kNo = Batch::kNoLabel;

TEST(Batch, FreshRowsAreAllPadding) {
  Batch batch;
  batch.resize(2, 3);
  EXPECT_THAT(batch.tokens, ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.labels, ElementsAre(kNo, kNo, kNo, kNo, kNo, kNo));
  EXPECT_EQ(batch.counted(), 0);
}

TEST(FillRow, PairsStayInsideTheirRow) {
  Batch batch;
  batch.resize(2, 3);
  const std::vector<int32_t> a{10, 11, 12}, b{20, 21, 22};
  fill_row(batch, 0, a, a);
  fill_row(batch, 1, b, b);
  EXPECT_THAT(batch.tokens, ElementsAre(10, 11, 12, 20, 21, 22));
  EXPECT_THAT(batch.labels, ElementsAre(11, 12, kNo, 21, 22, kNo));
  EXPECT_EQ(batch.counted(), 4);
}

TEST(FillRow, PaddingHasNoLabelAndAddsNoTarget) {
  Batch batch;
  batch.resize(1, 5);
  const std::vector<int32_t> row{1, 2, 3};
  fill_row(batch, 0, row, row);
  EXPECT_THAT(batch.tokens, ElementsAre(1, 2, 3, 0, 0));
  EXPECT_THAT(batch.labels, ElementsAre(2, 3, kNo, kNo, kNo));
  EXPECT_EQ(batch.counted(), 2);  // as for the unpadded row
}

TEST(FillRow, EndOfSequenceStaysATargetWhenItsIdIsThePadding) {
  Batch batch;
  batch.resize(1, 5);
  const std::vector<int32_t> row{4, 5, 0};
  fill_row(batch, 0, row, row);
  EXPECT_THAT(batch.labels, ElementsAre(5, 0, kNo, kNo, kNo));
  EXPECT_EQ(batch.counted(), 2);
}

TEST(FillRow, TargetsAreCountedAfterTheShift) {
  Batch batch;
  batch.resize(1, 4);
  const std::vector<int32_t> tokens{5, 6, 9, 7}, labels{5, 6, kNo, 7};
  fill_row(batch, 0, tokens, labels);
  EXPECT_THAT(batch.labels, ElementsAre(6, kNo, 7, kNo));
  EXPECT_EQ(batch.counted(), 2);
}

TEST(FillRow, ReplacesAllOfTheRowBefore) {
  Batch batch;
  batch.resize(1, 3);
  const std::vector<int32_t> full{7, 8, 9}, one{4};
  fill_row(batch, 0, full, full);
  fill_row(batch, 0, one, one);
  EXPECT_THAT(batch.tokens, ElementsAre(4, 0, 0));
  EXPECT_EQ(batch.counted(), 0);
  fill_row(batch, 0, {}, {});
  EXPECT_THAT(batch.tokens, ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace headrace
