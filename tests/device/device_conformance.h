// SPDX-License-Identifier: Apache-2.0
// What every Device does with its memory and its streams. An implementation instantiates the suite with a
// Maker type:
//   static std::unique_ptr<Device> make(size_t bytes);
//   static bool available();   false: the machine has no such device
// Device memory is reached through copies only.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "device/device.h"
#include "gate.h"
#include "headrace/error.h"
#include "require_gpu.h"

namespace headrace {

template <class Maker>
class DeviceConformance : public testing::Test {
 protected:
  void SetUp() override { HEADRACE_SKIP_UNLESS(Maker::available()); }
};

TYPED_TEST_SUITE_P(DeviceConformance);

TYPED_TEST_P(DeviceConformance, HasMemoryOfExactlyTheSizeAskedFor) {
  const auto device = TypeParam::make(1'000'003);
  EXPECT_EQ(device->memory().capacity(), 1'000'003u);
  EXPECT_THROW(device->memory().take(1'000'004, 1, "too much"), OutOfMemory);
  std::byte* const all = device->memory().take(1'000'003, 1, "all");
  device->compute().zero(all, 1'000'003);
  device->compute().synchronize();
}

TYPED_TEST_P(DeviceConformance, MemoryBeginsOnAPage) {
  const auto device = TypeParam::make(3 * 4096);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(device->memory().memory().data()) % 4096, 0u);
  for (int i = 0; i < 3; ++i) device->memory().take(4096, 4096, "a page of the plan");
}

TYPED_TEST_P(DeviceConformance, MayHaveNoMemory) {
  const auto device = TypeParam::make(0);
  EXPECT_EQ(device->memory().capacity(), 0u);
  device->compute().synchronize();
}

TYPED_TEST_P(DeviceConformance, MemoryIsZeroAtTheStart) {
  constexpr size_t kBytes = 100'000;
  const auto device = TypeParam::make(kBytes);
  std::vector<std::byte> seen(kBytes, std::byte{9});
  device->d2h().copy(seen.data(), device->memory().take(kBytes, 1, "all"), kBytes);
  device->d2h().synchronize();
  EXPECT_EQ(seen, std::vector<std::byte>(kBytes));
}

TYPED_TEST_P(DeviceConformance, OverflowNamesTheKeyToChange) {
  const auto device = TypeParam::make(4096);
  try {
    device->memory().take(5000, 64, "unit buffer");
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.tier, "device");
    EXPECT_THAT(error.what(), testing::HasSubstr("unit buffer"));
    EXPECT_THAT(error.what(), testing::HasSubstr("device.memory"));
  }
}

TYPED_TEST_P(DeviceConformance, MoreMemoryThanThereIsIsRefused) {
  EXPECT_THROW(TypeParam::make(size_t(1) << 46), OutOfMemory);
}

TYPED_TEST_P(DeviceConformance, CopiesAndZeroesInStreamOrder) {
  const auto device = TypeParam::make(4096);
  auto* const x = reinterpret_cast<int*>(device->memory().take(16, 64, "x"));
  auto* const y = reinterpret_cast<int*>(device->memory().take(16, 64, "y"));
  const std::array<int, 4> a = {1, 2, 3, 4};
  std::array<int, 4> b = {9, 9, 9, 9}, c = {9, 9, 9, 9};
  Stream& stream = device->compute();
  stream.copy(x, a.data(), sizeof(a));
  stream.copy(y, x, sizeof(a));
  stream.zero(x, 2 * sizeof(int));
  stream.copy(b.data(), x, sizeof(b));
  stream.copy(c.data(), y, sizeof(c));
  stream.copy(nullptr, nullptr, 0);
  stream.zero(nullptr, 0);
  stream.synchronize();
  EXPECT_EQ(b, (std::array{0, 0, 3, 4}));
  EXPECT_EQ(c, (std::array{1, 2, 3, 4}));
}

TYPED_TEST_P(DeviceConformance, PinnedMemoryIsCopiedBothWays) {
  HostMemory host(3 * 4096);
  const auto device = TypeParam::make(4096);
  device->pin(host.bytes());
  device->pin({});
  std::byte* const memory = device->memory().take(4096, 64, "buffer");
  for (size_t i = 0; i < 4096; ++i) host.bytes()[i] = std::byte(i % 251);
  const auto arrived = device->make_event();
  device->h2d().copy(memory, host.bytes().data(), 4096);
  device->h2d().record(*arrived);
  device->d2h().wait(*arrived);
  device->d2h().copy(host.bytes().data() + 4096, memory, 4096);
  device->d2h().synchronize();
  for (size_t i = 0; i < 4096; ++i) ASSERT_EQ(host.bytes()[4096 + i], std::byte(i % 251));
}

TYPED_TEST_P(DeviceConformance, CountsWhatItsCopyStreamsMove) {
  const auto device = TypeParam::make(8192);
  std::vector<std::byte> host(8192, std::byte{7});
  std::byte* const memory = device->memory().take(8192, 64, "buffer");
  EXPECT_EQ(device->link_stats(Link::h2d).bytes, 0u);
  device->h2d().copy(memory, host.data(), 8192);
  device->h2d().copy(memory, host.data(), 100);
  device->h2d().zero(memory, 50);
  device->h2d().synchronize();
  device->d2h().copy(host.data(), memory, 1000);
  device->d2h().synchronize();
  device->compute().copy(host.data(), memory, 10);
  device->compute().synchronize();
  EXPECT_EQ(device->link_stats(Link::h2d).bytes, 8292u);
  EXPECT_GT(device->link_stats(Link::h2d).busy_ns, 0u);
  EXPECT_EQ(device->link_stats(Link::d2h).bytes, 1000u);
  EXPECT_EQ(device->link_stats(Link::nvme_read).bytes, 0u);
  EXPECT_EQ(host[49], std::byte{0});
  EXPECT_EQ(host[50], std::byte{7});
}

TYPED_TEST_P(DeviceConformance, TimeInWorkIsComputingAndTimeInWaitsIsNot) {
  using std::chrono::milliseconds;
  const auto device = TypeParam::make(0);
  const auto event = device->make_event();
  Gate gate;
  device->compute().enqueue([] { std::this_thread::sleep_for(milliseconds(30)); });
  device->compute().synchronize();
  const uint64_t worked = device->compute_ns();
  EXPECT_GE(worked, 29'000'000u);
  device->h2d().enqueue(gate.task());
  device->h2d().record(*event);
  device->compute().enqueue([] {});
  device->compute().wait(*event);
  std::this_thread::sleep_for(milliseconds(200));
  gate.open();
  device->compute().synchronize();
  EXPECT_LT(device->compute_ns() - worked, 100'000'000u);  // most of the 200 ms it stood at the gate
}

TYPED_TEST_P(DeviceConformance, TimeOfTheRunningTaskCounts) {
  const auto device = TypeParam::make(0);
  Gate gate;
  device->compute().enqueue(gate.task());
  gate.wait_entered();
  const uint64_t first = device->compute_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_GE(device->compute_ns(), first + 29'000'000u);
  gate.open();
  device->compute().synchronize();
}

TYPED_TEST_P(DeviceConformance, DestroyingItFinishesStreamsThatWaitForOneAnother) {
  Gate gate;
  int ran = 0;
  auto device = TypeParam::make(0);
  {
    const auto a = device->make_event(), b = device->make_event();
    device->d2h().enqueue(gate.task());
    device->d2h().record(*a);
    device->h2d().wait(*a);
    device->h2d().enqueue([&ran] { ++ran; });
    device->h2d().record(*b);
    device->compute().wait(*b);
    device->compute().enqueue([&ran] { ++ran; });
  }
  gate.open();
  device.reset();
  EXPECT_EQ(ran, 2);
}

TYPED_TEST_P(DeviceConformance, DestroyingItWithAnUnseenErrorIsClean) {
  const auto device = TypeParam::make(0);
  const auto event = device->make_event();
  device->h2d().enqueue([] { throw DeviceError("never looked at"); });
  device->h2d().record(*event);
  device->compute().wait(*event);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceConformance, HasMemoryOfExactlyTheSizeAskedFor, MemoryBeginsOnAPage,
                            MayHaveNoMemory, MemoryIsZeroAtTheStart, OverflowNamesTheKeyToChange,
                            MoreMemoryThanThereIsIsRefused, CopiesAndZeroesInStreamOrder,
                            PinnedMemoryIsCopiedBothWays, CountsWhatItsCopyStreamsMove,
                            TimeInWorkIsComputingAndTimeInWaitsIsNot, TimeOfTheRunningTaskCounts,
                            DestroyingItFinishesStreamsThatWaitForOneAnother,
                            DestroyingItWithAnUnseenErrorIsClean);

}  // namespace headrace
