// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "device/device.h"
#include "headrace/error.h"

namespace headrace {
namespace {

using testing::HasSubstr;

class ArenaTest : public testing::Test {
 protected:
  alignas(4096) std::array<std::byte, 8192> storage_{};
  Arena arena_{"device", "raise device.memory", storage_};
};

TEST_F(ArenaTest, PiecesFollowOneAnotherAtTheirAlignment) {
  EXPECT_EQ(arena_.take(3, 1, "a"), storage_.data());
  EXPECT_EQ(arena_.take(64, 64, "b"), storage_.data() + 64);
  EXPECT_EQ(arena_.take(1, 4096, "c"), storage_.data() + 4096);
  EXPECT_EQ(arena_.used(), 4097u);
  EXPECT_EQ(arena_.capacity(), 8192u);
}

TEST_F(ArenaTest, AlignsAddressesNotOffsets) {
  Arena inner("device", "", std::span(storage_).subspan(1));
  EXPECT_EQ(inner.take(8, 256, "a"), storage_.data() + 256);
  EXPECT_EQ(inner.used(), 255u + 8u);
}

TEST_F(ArenaTest, GivesItsLastByte) {
  EXPECT_EQ(arena_.take(8192, 4096, "all"), storage_.data());
  EXPECT_EQ(arena_.take(0, 1, "nothing"), storage_.data() + 8192);
  EXPECT_THROW(arena_.take(1, 1, "more"), OutOfMemory);
}

TEST_F(ArenaTest, OverflowNamesWhatIsWantedWhatThereIsAndTheRemedy) {
  arena_.take(8000, 1, "weights");
  try {
    arena_.take(500, 64, "gradient of layer 3");
    FAIL() << "500 bytes do not fit into 192";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.tier, "device");
    EXPECT_EQ(error.wanted, 500u);
    EXPECT_EQ(error.available, 192u);  // 8000 is a multiple of 64
    EXPECT_THAT(error.what(), HasSubstr("500 bytes wanted"));
    EXPECT_THAT(error.what(), HasSubstr("192 available"));
    EXPECT_THAT(error.what(), HasSubstr("gradient of layer 3"));
    EXPECT_THAT(error.what(), HasSubstr("raise device.memory"));
  }
}

TEST_F(ArenaTest, ARefusalTakesNothing) {
  arena_.take(100, 1, "a");
  EXPECT_THROW(arena_.take(size_t(-1), 64, "wraps around"), OutOfMemory);
  EXPECT_THROW(arena_.take(size_t(-50), 1, "wraps around"), OutOfMemory);
  EXPECT_EQ(arena_.used(), 100u);
}

TEST_F(ArenaTest, PaddingBeyondTheEndIsARefusal) {
  arena_.take(8190, 1, "a");
  Arena cut("device", "", std::span(storage_).first(8191));
  cut.take(8190, 1, "a");
  EXPECT_THROW(cut.take(0, 4096, "b"), OutOfMemory);
}

TEST(ArenaDeathTest, AnAlignmentThatIsNoPowerOfTwoAborts) {
  std::array<std::byte, 64> storage;
  Arena arena("device", "", storage);
  EXPECT_DEATH(arena.take(1, 3, "a"), "power of two");
}

}  // namespace
}  // namespace headrace
