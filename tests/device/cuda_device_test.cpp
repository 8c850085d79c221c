// SPDX-License-Identifier: Apache-2.0
// The cuda device by the suites that the host device passes, and what is its own. In a normal build on a real
// GPU, and in the emulated build on the emulated one.
#include "device/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda_info.h"
#include "device_conformance.h"
#include "headrace/error.h"
#include "stream_conformance.h"
#include "stream_error_conformance.h"

namespace headrace {
namespace {

#ifdef HEADRACE_CUDA_EMULATED
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif

struct CudaKind {
  using Stream = CudaStream;
  using Event = CudaEvent;
  static constexpr bool kTasksRunSideBySide = kEmulated;  // the driver may have one thread for all of them
  static bool available() { return has_usable_gpu(); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, StreamConformance, CudaKind);
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, StreamErrorConformance, CudaKind);

struct CudaMaker {
  static bool available() { return has_usable_gpu(); }
  static std::unique_ptr<Device> make(size_t bytes) {
    return make_device({.kind = DeviceOptions::Kind::cuda, .memory_bytes = bytes});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, DeviceConformance, CudaMaker);

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override { HEADRACE_SKIP_UNLESS(has_usable_gpu()); }
};

TEST_F(CudaDeviceTest, DescribesItself) {
  const auto device = CudaMaker::make(size_t(64) << 20);
  EXPECT_EQ(device->kind(), DeviceKind::cuda);
  EXPECT_THAT(device->description(),
              testing::MatchesRegex(".+, 0.06 GiB of [0-9.]+ GiB, compute capability [0-9]+.[0-9]+"));
}

TEST_F(CudaDeviceTest, StreamsHaveHandlesOfTheirOwn) {
  const auto device = CudaMaker::make(0);
  void* const handles[] = {device->compute().native_handle(), device->h2d().native_handle(),
                           device->d2h().native_handle()};
  EXPECT_NE(handles[0], nullptr);
  EXPECT_NE(handles[0], handles[1]);
  EXPECT_NE(handles[1], handles[2]);
  EXPECT_NE(handles[0], handles[2]);
}

TEST_F(CudaDeviceTest, WantingMoreThanIsFreeNamesWhatToLower) {
  try {
    CudaMaker::make(size_t(1) << 46);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.tier, "device");
    EXPECT_EQ(error.wanted, uint64_t(1) << 46);
    EXPECT_GT(error.available, 0u);
    EXPECT_THAT(error.what(), testing::HasSubstr("lower device.memory"));
  }
}

TEST_F(CudaDeviceTest, MemoryIsGivenBack) {
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  CudaMaker::make(size_t(64) << 20).reset();
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(after, before);
}

TEST_F(CudaDeviceTest, PinningTwiceFailsWithPlaceAndBytes) {
  HostMemory host(8192);
  const auto device = CudaMaker::make(0);
  device->pin(host.bytes());
  try {
    device->pin(host.bytes());
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("8192 bytes of host memory"));
    EXPECT_THAT(error.what(), testing::HasSubstr("cuda_device.cpp:"));
  }
}

TEST_F(CudaDeviceTest, MemoryMayBePinnedAgainAfterTheDevice) {
  HostMemory host(8192);
  for (int i = 0; i < 2; ++i) CudaMaker::make(0)->pin(host.bytes());
}

TEST_F(CudaDeviceTest, MoreIntervalsThanTheRingHasAreAllCounted) {
  const auto device = CudaMaker::make(4096);
  std::vector<std::byte> host(64);
  std::byte* const memory = device->memory().take(64, 64, "buffer");
  const size_t copies = 3 * CudaBusyTime::kIntervals + 7;
  uint64_t last = 0;
  for (size_t i = 0; i < copies; ++i) {
    device->h2d().copy(memory, host.data(), 64);
    if (i % 500 != 0) continue;
    const uint64_t now = device->link_stats(Link::h2d).busy_ns;
    EXPECT_GE(now, last);
    last = now;
  }
  device->h2d().synchronize();
  EXPECT_EQ(device->link_stats(Link::h2d).bytes, copies * 64);
  EXPECT_GE(device->link_stats(Link::h2d).busy_ns, last);
}

}  // namespace
}  // namespace headrace
