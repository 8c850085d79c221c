// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "device/device.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

/// Pages of `bytes` that are in memory, as the kernel sees it.
size_t resident_pages(std::span<std::byte> bytes) {
  const auto page = size_t(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((bytes.size() + page - 1) / page);
  EXPECT_EQ(mincore(bytes.data(), bytes.size(), resident.data()), 0);
  return size_t(std::count_if(resident.begin(), resident.end(), [](unsigned char p) { return p & 1; }));
}

TEST(HostMemory, IsExactlyTheSizeAskedForAlignedAndZero) {
  for (const size_t bytes : {size_t(1), size_t(4097), kHugePage - 1, kHugePage, kHugePage + 1}) {
    const HostMemory memory(bytes);
    EXPECT_EQ(memory.bytes().size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.bytes().data()) % kHugePage, 0u);
    EXPECT_TRUE(all_zero(memory.bytes()));
  }
}

TEST(HostMemory, IsResidentFromTheStart) {
  constexpr size_t kBytes = size_t(150) << 20;  // more than one thread's part, and no multiple of it
  const HostMemory memory(kBytes + 5);
  const auto page = size_t(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(resident_pages(memory.bytes()), kBytes / page + 1);
}

TEST(HostMemory, OfNoBytesIsEmpty) {
  const HostMemory memory(0);
  EXPECT_TRUE(memory.bytes().empty());
}

TEST(HostMemory, MovesItsPages) {
  HostMemory from(4096);
  std::byte* const data = from.bytes().data();
  const HostMemory to(std::move(from));
  EXPECT_EQ(to.bytes().data(), data);
  EXPECT_TRUE(from.bytes().empty());  // NOLINT: the moved-from state is part of the contract
}

TEST(HostMemory, MoreThanTheMachineHasIsRefusedBeforeItIsTouched) {
  try {
    const HostMemory memory(size_t(1) << 46);
    FAIL() << "64 TiB were granted";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.tier, "host");
    EXPECT_EQ(error.wanted, uint64_t(1) << 46);
    EXPECT_GT(error.available, 0u);
    EXPECT_THAT(error.what(), testing::HasSubstr("offload.host_memory"));
  }
  EXPECT_THROW(HostMemory(size_t(-1)), OutOfMemory);
}

}  // namespace
}  // namespace headrace
