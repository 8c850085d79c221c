// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "data/token_source.h"
#include "headrace/error.h"

namespace headrace {
namespace {

using testing::ElementsAre;

/// `count` windows of one token each: window i is token i with label i + 1.
class Numbered final : public TokenSource {
 public:
  explicit Numbered(uint64_t count) : count_(count) {}
  uint64_t token_count() const override { return count_ + 1; }
  uint64_t window_count() const override { return count_; }
  std::string fingerprint() const override { return "numbered"; }
  void read_window(uint64_t window, Batch& batch, int64_t row) const override {
    batch.tokens[size_t(row)] = int32_t(window);
    batch.labels[size_t(row)] = int32_t(window) + 1;
  }

 private:
  uint64_t count_;
};

std::vector<uint64_t> order(uint64_t seed, uint64_t epoch, uint64_t count) {
  std::vector<uint64_t> out(count);
  for (uint64_t i = 0; i < count; ++i) out[i] = shuffled_window(seed, epoch, count, i);
  return out;
}

/// The epoch's windows in global order, taken by world_size ranks of `rows` rows.
std::vector<int32_t> global_order(uint64_t count, uint64_t seed, uint64_t epoch, int world_size,
                                  int64_t rows) {
  const Numbered source(count);
  std::vector<WindowLoader> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back(source, seed, rank, world_size).seek({.epoch = epoch, .window = 0});
  }
  std::vector<int32_t> out;
  Batch batch;
  batch.resize(rows, 1);
  for (bool more = true; more;) {
    for (WindowLoader& loader : ranks) {
      more = loader.next(batch, true);
      for (size_t row = 0; more && row < size_t(rows); ++row) {
        if (batch.labels[row] != Batch::kNoLabel) out.push_back(batch.tokens[row]);
      }
    }
  }
  return out;
}

TEST(Shuffle, IsAPermutationForEveryCount) {
  for (uint64_t count : {1, 2, 3, 10, 255, 256, 257, 1000, 1024, 1025, 20000}) {
    std::vector<uint64_t> windows = order(5, 2, count), all(count);
    std::iota(all.begin(), all.end(), 0u);
    std::sort(windows.begin(), windows.end());
    EXPECT_EQ(windows, all) << count;
  }
}

// From a Python program written from the header's description (splitmix64 checked with its published first
// output for seed 0, 0xe220a8397b1dcdaf): a saved position means these windows for ever.
TEST(Shuffle, OrderIsFixedForEver) {
  EXPECT_THAT(order(1, 0, 10), ElementsAre(1, 2, 4, 5, 0, 9, 6, 3, 7, 8));
  EXPECT_THAT(order(1, 1, 10), ElementsAre(9, 6, 2, 8, 3, 4, 7, 0, 5, 1));
  const std::vector<uint64_t> thousand = order(7, 3, 1000);
  EXPECT_THAT(std::vector<uint64_t>(thousand.begin(), thousand.begin() + 8),
              ElementsAre(93, 98, 198, 569, 114, 962, 744, 561));
}

TEST(Shuffle, DependsOnSeedAndEpoch) {
  EXPECT_EQ(order(1, 0, 500), order(1, 0, 500));
  EXPECT_NE(order(1, 0, 500), order(1, 1, 500));
  EXPECT_NE(order(1, 0, 500), order(2, 0, 500));
  EXPECT_NE(order(1, 1, 500), order(2, 0, 500));
}

TEST(Shuffle, EveryWindowComesFirstEquallyOften) {
  constexpr uint64_t kCount = 12, kEpochs = 24000;
  std::vector<int> first(kCount), last(kCount);
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    ++first[shuffled_window(3, epoch, kCount, 0)];
    ++last[shuffled_window(3, epoch, kCount, kCount - 1)];
  }
  // Binomial(24000, 1/12): mean 2000, standard deviation 42.8; 5 of them.
  for (const auto& counts : {first, last}) {
    for (const int count : counts) EXPECT_NEAR(count, 2000, 214);
  }
}

TEST(Shuffle, PlacesAndNeighboursAreUncorrelated) {
  constexpr uint64_t kCount = 10000;
  const std::vector<uint64_t> windows = order(11, 0, kCount);
  const double mean = (kCount - 1) / 2.0, variance = (double(kCount) * kCount - 1) / 12;
  double place = 0, neighbour = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    place += (double(windows[i]) - mean) * (double(i) - mean);
    neighbour += (double(windows[i]) - mean) * (double(windows[(i + 1) % kCount]) - mean);
  }
  // A random permutation's correlation has standard deviation 1/sqrt(n - 1) = 0.01; 5 of them.
  EXPECT_LT(std::abs(place / kCount / variance), 0.05);
  EXPECT_LT(std::abs(neighbour / kCount / variance), 0.05);
}

TEST(Loader, RanksCoverEachWindowOnceInTheSameGlobalOrder) {
  for (uint64_t count : {24, 37, 3}) {
    const std::vector<int32_t> one = global_order(count, 9, 4, 1, 4);
    EXPECT_EQ(std::set<int32_t>(one.begin(), one.end()).size(), count);
    ASSERT_EQ(one.size(), count);
    EXPECT_EQ(global_order(count, 9, 4, 2, 2), one);
    EXPECT_EQ(global_order(count, 9, 4, 4, 1), one);
    EXPECT_EQ(global_order(count, 9, 4, 4, 3), one) << "nor does it depend on the micro-batch";
    if (count < 10) continue;  // of few windows, two orders may be equal by chance
    EXPECT_NE(global_order(count, 9, 5, 1, 4), one);
    EXPECT_NE(global_order(count, 10, 4, 1, 4), one);
  }
}

TEST(Loader, LastMicroBatchOfAnEpochIsShort) {
  const Numbered source(39);  // 9 micro-batches of 4 rows and one of 3
  WindowLoader loader(source, 1, 0, 1);
  Batch batch;
  batch.resize(4, 1);
  std::vector<int64_t> counted;
  while (loader.next(batch, true)) counted.push_back(batch.counted());
  EXPECT_THAT(counted, ElementsAre(4, 4, 4, 4, 4, 4, 4, 4, 4, 3));
  EXPECT_EQ(batch.tokens[3], 0);
  EXPECT_EQ(batch.labels[3], Batch::kNoLabel);
  EXPECT_EQ(loader.position(), (DataPosition{.epoch = 0, .window = 39}));
  EXPECT_FALSE(loader.next(batch, true)) << "and takes nothing";
  EXPECT_EQ(loader.position(), (DataPosition{.epoch = 0, .window = 39}));
  EXPECT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.counted(), 4);
  EXPECT_EQ(batch.tokens[0], int32_t(shuffled_window(1, 1, 39, 0)));
  EXPECT_EQ(loader.position(), (DataPosition{.epoch = 1, .window = 4}));
}

TEST(Loader, RankWithoutRowsAtTheEndGetsPaddingAndStaysInStep) {
  const Numbered source(5);
  WindowLoader first(source, 1, 0, 2), second(source, 1, 1, 2);
  Batch batch;
  batch.resize(2, 1);
  for (WindowLoader* loader : {&first, &second}) ASSERT_TRUE(loader->next(batch, true));
  ASSERT_TRUE(first.next(batch, true));
  EXPECT_EQ(batch.counted(), 1);
  ASSERT_TRUE(second.next(batch, true));
  EXPECT_EQ(batch.counted(), 0);
  EXPECT_EQ(first.position(), second.position());
}

TEST(Loader, ContinuesExactlyFromEveryPosition) {
  const Numbered source(11);
  WindowLoader whole(source, 6, 0, 1);
  Batch expected, batch;
  expected.resize(3, 1);
  batch.resize(3, 1);
  for (int step = 0; step < 12; ++step) {  // three epochs of 4 micro-batches
    WindowLoader resumed(source, 6, 0, 1);
    resumed.seek(whole.position());
    ASSERT_TRUE(whole.next(expected));
    ASSERT_TRUE(resumed.next(batch));
    EXPECT_EQ(batch.tokens, expected.tokens) << step;
    EXPECT_EQ(batch.labels, expected.labels) << step;
    EXPECT_EQ(resumed.position(), whole.position()) << step;
  }
}

TEST(Loader, PositionBeyondTheEpochIsRefused) {
  const Numbered source(11);
  WindowLoader loader(source, 6, 0, 1);
  EXPECT_NO_THROW(loader.seek({.epoch = 3, .window = 11}));
  EXPECT_THROW(loader.seek({.epoch = 0, .window = 12}), ConfigError);
}

}  // namespace
}  // namespace headrace
