// SPDX-License-Identifier: Apache-2.0
// The cuda device when memory is short, when it is lost, and when there is none: what only an emulated GPU
// can be made to do.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda_device.h"
#include "device/cuda_info.h"
#include "headrace/error.h"
#include "kernels/cuda/launch.h"
#include "tests/emulation/control.h"

namespace headrace {
namespace {

constexpr size_t kMiB = size_t(1) << 20, kPage = 4096;

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
    EXPECT_EQ(error.available, 24 * kMiB - kPage);
  }
}

TEST_F(ShortOfMemory, TheLastByteMayBeTaken) {
  const auto device = make_cuda(64 * kMiB - kPage);
  EXPECT_EQ(device->memory().capacity(), 64 * kMiB - kPage);
}

TEST(DeviceMemory, IsThePlanAndAPageToAlignItAndGoesWithTheDevice) {
  auto device = make_cuda(3 * kMiB + 17);
  EXPECT_EQ(emulation::device_bytes_in_use(), 3 * kMiB + 17 + kPage);
  device.reset();
  EXPECT_EQ(emulation::device_bytes_in_use(), 0u);
}

/// Threads that do not meet at one barrier: the emulated device does not survive that.
__global__ void part_ways() {
  if (threadIdx.x == 0) __syncthreads();
}

class LostDevice : public testing::Test {
 protected:
  void SetUp() override {
    device_ = make_cuda(4096);
    kernels::cuda::launch(static_cast<cudaStream_t>(device_->compute().native_handle()), part_ways,
                          {.grid = dim3(1), .block = dim3(32)});
  }
  void TearDown() override {
    device_.reset();
    emulation::reset_device();
  }
  std::unique_ptr<Device> device_;
};

TEST_F(LostDevice, ErrorsNameThePlaceAndTheCause) {
  try {
    device_->compute().synchronize();
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::ContainsRegex("\\(cuda_[a-z_]+.cpp:[0-9]+\\)"));
    EXPECT_THAT(error.what(), testing::HasSubstr("cudaErrorLaunchFailure"));
  }
}

TEST_F(LostDevice, NobodyWaitsForTasksThatNeverRun) {
  int ran = 0;
  EXPECT_THROW(
      {
        for (size_t i = 0; i < 3 * CudaStream::kQueueEntries; ++i)
          device_->compute().enqueue([&ran] { ++ran; });
        device_->compute().synchronize();
      },
      DeviceError);
  EXPECT_EQ(ran, 0);
}

TEST_F(LostDevice, CopiesFailWithTheirBytes) {
  EXPECT_THROW(device_->compute().synchronize(), DeviceError);
  std::byte host[100];
  try {
    device_->h2d().copy(device_->memory().take(100, 1, "x"), host, 100);
    device_->h2d().synchronize();
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::AnyOf(testing::HasSubstr("record of an event"),
                                             testing::HasSubstr("copy of 100 bytes")));
  }
}

}  // namespace
}  // namespace headrace
