// SPDX-License-Identifier: Apache-2.0
#include "zero/partition.h"

#include <gtest/gtest.h>

#include <tuple>

namespace headrace {
namespace {

TEST(Partition, HandComputedValues) {
  EXPECT_EQ(padded_elems(0, 4), 0);
  EXPECT_EQ(padded_elems(1, 1), 2048);
  EXPECT_EQ(padded_elems(2048, 1), 2048);
  EXPECT_EQ(padded_elems(2049, 1), 4096);
  EXPECT_EQ(padded_elems(2049, 3), 6144);
  EXPECT_EQ(padded_elems(1'000'003, 8), 1'015'808);  // 62 * 16384; 61 * 16384 = 999424 is too small

  const Shard middle = shard_of(2049, 1, 3);  // shards of 2048: the second holds the one element left over
  EXPECT_EQ(std::tuple(middle.begin, middle.elems, middle.valid), std::tuple(2048, 2048, 1));
  const Shard last = shard_of(1'000'003, 7, 8);  // 126976 a shard; 1000003 - 7 * 126976 = 111171
  EXPECT_EQ(std::tuple(last.begin, last.elems, last.valid), std::tuple(888'832, 126'976, 111'171));
}

TEST(Partition, HoldsBeyondThirtyTwoBits) {
  constexpr int64_t kElems = int64_t(5) << 32;  // divides evenly over 8 ranks
  const Shard last = shard_of(kElems, 7, 8);
  EXPECT_EQ(std::tuple(last.begin, last.elems, last.valid),
            std::tuple(kElems / 8 * 7, kElems / 8, kElems / 8));
}

class PartitionOf : public testing::TestWithParam<std::tuple<int64_t, int>> {};

TEST_P(PartitionOf, IsEqualShardsThatTileTheUnitAndCountEveryElementOnce) {
  const auto [elems, world_size] = GetParam();
  const int64_t padded = padded_elems(elems, world_size);
  EXPECT_GE(padded, elems);
  EXPECT_LT(padded - elems, world_size * kShardMultiple);
  int64_t end = 0, valid = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    const Shard shard = shard_of(elems, rank, world_size);
    EXPECT_EQ(shard.elems, shard_of(elems, 0, world_size).elems);
    EXPECT_EQ(shard.elems % kShardMultiple, 0);
    EXPECT_EQ(shard.begin, end);
    EXPECT_GE(shard.valid, 0);
    EXPECT_LE(shard.valid, shard.elems);
    // Padding only at the end: a shard with some has nothing valid after it.
    if (valid < shard.begin) {
      EXPECT_EQ(shard.valid, 0);
    }
    end += shard.elems;
    valid += shard.valid;
  }
  EXPECT_EQ(end, padded);
  EXPECT_EQ(valid, elems);
}

INSTANTIATE_TEST_SUITE_P(SizesAndRanks, PartitionOf,
                         testing::Combine(testing::Values<int64_t>(0, 1, 3, 7, 31, 2048, 2049, 1'000'003),
                                          testing::Range(1, 9)));

TEST(PartitionDeathTest, ARankOutsideItsGroupAborts) {
  EXPECT_DEATH((void)shard_of(10, 2, 2), "a rank lies in its group");
  EXPECT_DEATH((void)padded_elems(-1, 2), "negative");
}

}  // namespace
}  // namespace headrace
