// SPDX-License-Identifier: Apache-2.0
// The cuda device when memory is short, when it is lost, and when there is none: what only an emulated GPU
// can be made to do.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda_device.h"
#include "device/cuda_info.h"
#include "headrace/error.h"
#include "tests/emulation/control.h"

namespace headrace {
namespace {

constexpr size_t kMiB = size_t(1) << 20;

std::unique_ptr<Device> make_cuda(size_t bytes) {
  return make_device({.kind = DeviceOptions::Kind::cuda, .memory_bytes = bytes});
}

class ShortOfMemory : public testing::Test {
 protected:
  void SetUp() override { emulation::set_device_memory(64 * kMiB); }
  void TearDown() override { emulation::set_device_memory(8192 * kMiB); }
};

TEST_F(ShortOfMemory, IsRefusedBeforeAnythingIsTaken) {
  try {
    make_cuda(65 * kMiB);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.tier, "device");
    EXPECT_EQ(error.wanted, 65 * kMiB);
    EXPECT_EQ(error.available, 64 * kMiB);
    EXPECT_THAT(error.what(), testing::HasSubstr("lower device.memory"));
  }
  EXPECT_EQ(emulation::device_bytes_in_use(), 0u);
}

TEST_F(ShortOfMemory, WhatOthersUseIsNotAvailable) {
  const auto first = make_cuda(40 * kMiB);
  try {
    make_cuda(40 * kMiB);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.available, 24 * kMiB);
  }
}

TEST_F(ShortOfMemory, TheLastByteMayBeTaken) {
  const auto device = make_cuda(64 * kMiB);
  EXPECT_EQ(device->memory().capacity(), 64 * kMiB);
}

TEST(DeviceMemory, IsThePlanAndNothingElseAndGoesWithTheDevice) {
  auto device = make_cuda(3 * kMiB + 17);
  EXPECT_EQ(emulation::device_bytes_in_use(), 3 * kMiB + 17);
  device.reset();
  EXPECT_EQ(emulation::device_bytes_in_use(), 0u);
}

/// A copy to an address that is nobody's, which the device does not survive.
void lose(Device& device) {
  std::byte host{};
  std::byte* const memory = device.memory().take(1, 1, "last byte");
  device.compute().copy(memory + (size_t(1) << 40), &host, 1);
  device.compute().synchronize();
}

class LostDevice : public testing::Test {
 protected:
  void TearDown() override { emulation::reset_device(); }
};

TEST_F(LostDevice, ErrorsNameTheCallTheBytesAndTheCause) {
  const auto device = make_cuda(4096);
  try {
    lose(*device);
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cuda_stream.cpp:"));
    EXPECT_THAT(error.what(), testing::HasSubstr("cudaError"));
  }
}

}  // namespace
}  // namespace headrace
