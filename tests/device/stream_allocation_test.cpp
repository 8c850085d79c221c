// SPDX-License-Identifier: Apache-2.0
// Streams and events allocate nothing once they are made.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "device/device.h"
#include "tests/counted_new.h"

namespace headrace {
namespace {

TEST(StreamAllocation, IsCountedByThisProgram) {
  const size_t before = allocation_count();
  auto* volatile number = new int;  // volatile: the compiler may otherwise leave out the pair
  delete number;
  EXPECT_EQ(allocation_count(), before + 1);
}

TEST(StreamAllocation, AHundredThousandTasksAllocateNothing) {
  const auto device = make_device({.kind = DeviceOptions::Kind::host, .memory_bytes = 4096});
  const auto copied = device->make_event(), used = device->make_event();
  std::array<std::byte, 256> source{}, target{};
  size_t ran = 0;
  const size_t before = allocation_count();
  for (int i = 0; i < 25'000; ++i) {
    device->h2d().wait(*used);
    device->h2d().copy(target.data(), source.data(), source.size());
    device->h2d().record(*copied);
    device->compute().wait(*copied);
    device->compute().enqueue([&ran] { ++ran; });
    device->compute().record(*used);
    device->d2h().enqueue([] {});
    device->d2h().zero(source.data(), 0);
    device->d2h().enqueue([] {});
    if (i % 1000 == 0) used->synchronize();
  }
  device->compute().synchronize();
  device->d2h().synchronize();
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(ran, 25'000u);
}

}  // namespace
}  // namespace headrace
