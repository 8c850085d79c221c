// SPDX-License-Identifier: Apache-2.0
#include "cli/byte_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace headrace::cli {
namespace {

TEST(ParseBytes, KnowsBothFamiliesOfUnits) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("10B"), 10u);
  EXPECT_EQ(parse_bytes("2KiB"), 2048u);
  EXPECT_EQ(parse_bytes("512MiB"), 536870912u);
  EXPECT_EQ(parse_bytes("1GiB"), 1073741824u);
  EXPECT_EQ(parse_bytes("2 TiB"), 2199023255552u);
  EXPECT_EQ(parse_bytes("2MB"), 2000000u);
  EXPECT_EQ(parse_bytes("3GB"), 3000000000u);
  EXPECT_EQ(parse_bytes("1.5GiB"), 1610612736u);
  EXPECT_EQ(parse_bytes("9223372036854775807"), 9223372036854775807u);
}

TEST(ParseBytes, RefusesWhatIsNotAWholeNumberOfBytes) {
  for (const char* text : {"", "MiB", "-1", "1.3B", "0.1KiB", "1 2MiB", "1mib", "1.2.3GB", "12 parsecs",
                           "1e3", "9223372036854775808", "99999999TiB", "  1", "1MiB "}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(ExactBytes, ReadsBackAsTheSameNumber) {
  EXPECT_EQ(exact_bytes(536870912), "512MiB");
  EXPECT_EQ(exact_bytes(1u << 30), "1GiB");
  EXPECT_EQ(exact_bytes(1536u << 20), "1536MiB");
  EXPECT_EQ(exact_bytes(1000), "1000");
  EXPECT_EQ(exact_bytes(0), "0");
  for (const uint64_t bytes : {uint64_t(1), uint64_t(1) << 61, uint64_t(4097), (uint64_t(1) << 62) - 1}) {
    EXPECT_EQ(parse_bytes(exact_bytes(bytes)), bytes);
  }
}

TEST(ReadableBytes, HasTwoDecimalsAndTheRightUnit) {
  EXPECT_EQ(readable_bytes(0), "0 B");
  EXPECT_EQ(readable_bytes(1023), "1023 B");
  EXPECT_EQ(readable_bytes(1536), "1.50 KiB");
  EXPECT_EQ(readable_bytes(5.0 * 1073741824), "5.00 GiB");
}

TEST(ReadableSeconds, GrowsItsUnits) {
  EXPECT_EQ(readable_seconds(0), "0s");
  EXPECT_EQ(readable_seconds(59.4), "59s");
  EXPECT_EQ(readable_seconds(59.6), "1m 00s");
  EXPECT_EQ(readable_seconds(125), "2m 05s");
  EXPECT_EQ(readable_seconds(3 * 3600 + 7 * 60 + 1), "3h 07m");
  EXPECT_EQ(readable_seconds(5 * 86400 + 2 * 3600), "5d 02h");
  EXPECT_EQ(readable_seconds(-1), "--");
  EXPECT_EQ(readable_seconds(std::numeric_limits<double>::quiet_NaN()), "--");
  EXPECT_EQ(readable_seconds(std::numeric_limits<double>::infinity()), "--");
}

}  // namespace
}  // namespace headrace::cli
