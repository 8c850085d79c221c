// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "gate.h"
#include "headrace/error.h"

namespace headrace {
namespace {

std::unique_ptr<Device> make_host_device(size_t bytes) {
  return make_device({.kind = DeviceOptions::Kind::host, .memory_bytes = bytes});
}

TEST(HostDevice, HasMemoryOfExactlyTheSizeAskedFor) {
  const auto device = make_host_device(1'000'003);
  EXPECT_EQ(device->memory().capacity(), 1'000'003u);
  EXPECT_THROW(device->memory().take(1'000'004, 1, "too much"), OutOfMemory);
  std::byte* const all = device->memory().take(1'000'003, 64, "all");
  device->compute().zero(all, 1'000'003);
  device->compute().synchronize();
}

TEST(HostDevice, OverflowNamesTheKeyToChange) {
  const auto device = make_host_device(4096);
  try {
    device->memory().take(5000, 64, "unit buffer");
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.tier, "device");
    EXPECT_THAT(error.what(), testing::HasSubstr("unit buffer"));
    EXPECT_THAT(error.what(), testing::HasSubstr("device.memory"));
  }
}

TEST(HostDevice, DescribesItself) {
  EXPECT_THAT(make_host_device(size_t(3) << 20)->description(),
              testing::MatchesRegex("host device, 3 MiB, [0-9]+ threads?"));
  EXPECT_THAT(make_host_device(1000)->description(), testing::MatchesRegex("host device, 1000 bytes, .*"));
}

TEST(HostDevice, NamesItsThreads) {
  const auto device = make_host_device(0);
  for (const auto& [stream, expected] : std::vector<std::pair<Stream*, std::string>>{
           {&device->compute(), "hr-compute"}, {&device->h2d(), "hr-h2d"}, {&device->d2h(), "hr-d2h"}}) {
    char name[16] = {};
    stream->enqueue([&name] { pthread_getname_np(pthread_self(), name, sizeof(name)); });
    stream->synchronize();
    EXPECT_EQ(name, expected);
    EXPECT_EQ(stream->kind(), DeviceKind::host);
    EXPECT_EQ(stream->native_handle(), nullptr);
  }
}

TEST(HostDevice, CountsWhatItsCopyStreamsMove) {
  const auto device = make_host_device(8192);
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

TEST(HostDevice, DestroyingItFinishesStreamsThatWaitForOneAnother) {
  Gate gate;
  int ran = 0;
  auto device = make_host_device(0);
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

TEST(HostDevice, DestroyingItWithAnUnseenErrorIsClean) {
  const auto device = make_host_device(0);
  const auto event = device->make_event();
  device->h2d().enqueue([] { throw DeviceError("never looked at"); });
  device->h2d().record(*event);
  device->compute().wait(*event);
}

TEST(MakeDevice, AutomaticTakesTheHost) {
  EXPECT_EQ(make_device({.memory_bytes = 4096})->kind(), DeviceKind::host);
}

TEST(MakeDevice, CudaIsRefusedWithWhatToDo) {
  try {
    make_device({.kind = DeviceOptions::Kind::cuda, .memory_bytes = 4096});
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no CUDA kernels"));
    EXPECT_THAT(error.what(), testing::HasSubstr("device.kind = \"host\""));
  }
}

TEST(MakeDevice, MoreMemoryThanTheMachineHasIsRefused) {
  EXPECT_THROW(make_host_device(size_t(1) << 46), OutOfMemory);
}

}  // namespace
}  // namespace headrace
