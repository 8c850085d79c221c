// SPDX-License-Identifier: Apache-2.0
#include "nvme/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string_view>
#include <vector>

namespace headrace::nvme {
namespace {

TEST(Crc32c, MatchesTheStandardVectors) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283u);
  // RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and 0..31.
  std::array<unsigned char, 32> bytes{};
  EXPECT_EQ(crc32c(std::as_bytes(std::span(bytes))), 0x8a9136aau);
  bytes.fill(0xff);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(bytes))), 0x62a8ab43u);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(bytes))), 0x46dd794eu);
}

/// The definition, bit by bit: reflected polynomial 0x82f63b78, both inversions.
uint32_t bitwise_crc32c(std::span<const std::byte> data) {
  uint32_t crc = 0xffffffffu;
  for (const std::byte value : data) {
    crc ^= uint32_t(value);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

TEST(Crc32c, MatchesTheDefinitionAtAnySizeAndAlignment) {
  std::vector<std::byte> data(70000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = std::byte((i * 2654435761u) >> 13);
  for (const size_t bytes : {0, 1, 3, 7, 8, 63, 64, 65, 511, 4095, 4097, 65536}) {
    for (const size_t begin : {0, 1, 5, 64}) {
      const std::span<const std::byte> part = std::span(data).subspan(begin, bytes);
      EXPECT_EQ(crc32c(part), bitwise_crc32c(part)) << bytes << " bytes at " << begin;
    }
  }
}

}  // namespace
}  // namespace headrace::nvme
