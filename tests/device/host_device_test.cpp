// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <string>
#include <utility>
#include <vector>

#include "device/cuda_info.h"
#include "device/device.h"
#include "device_conformance.h"
#include "headrace/error.h"

namespace headrace {
namespace {

std::unique_ptr<Device> make_host_device(size_t bytes) {
  return make_device({.kind = DeviceOptions::Kind::host, .memory_bytes = bytes});
}

struct HostMaker {
  static bool available() { return true; }
  static std::unique_ptr<Device> make(size_t bytes) { return make_host_device(bytes); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Host, DeviceConformance, HostMaker);

TEST(HostDevice, DescribesItself) {
  EXPECT_THAT(make_host_device(size_t(3) << 20)->description(),
              testing::MatchesRegex("host device, 3 MiB, [0-9]+ threads?"));
  EXPECT_THAT(make_host_device(1000)->description(), testing::MatchesRegex("host device, 1000 bytes, .*"));
  EXPECT_THAT(make_host_device((size_t(5) << 20) / 2)->description(),
              testing::MatchesRegex("host device, 2.50 MiB, .*"));
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

TEST(MakeDevice, AutomaticTakesAGpuWhereThisBuildHasKernelsForIt) {
  const DeviceKind expected = has_usable_gpu() ? DeviceKind::cuda : DeviceKind::host;
  EXPECT_EQ(resolve_device(DeviceOptions::Kind::automatic), expected);
  EXPECT_EQ(make_device({.memory_bytes = 4096})->kind(), expected);
}

TEST(MakeDevice, CudaWithoutAGpuIsRefusedWithWhatToDo) {
  if (has_usable_gpu()) GTEST_SKIP() << "there is a GPU";
  try {
    make_device({.kind = DeviceOptions::Kind::cuda, .memory_bytes = 4096});
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(),
                testing::AnyOf(testing::HasSubstr("no CUDA kernels"), testing::HasSubstr("no GPU is visible"),
                               testing::HasSubstr("CMAKE_CUDA_ARCHITECTURES")));
    EXPECT_THAT(error.what(), testing::HasSubstr("device.kind"));
  }
}

TEST(MakeDevice, APlanForCudaNeedsTheKernelsAndNoGpu) {
  if (built_with_cuda()) {
    EXPECT_EQ(resolve_device(DeviceOptions::Kind::cuda), DeviceKind::cuda);
  } else {
    EXPECT_THROW(resolve_device(DeviceOptions::Kind::cuda), DeviceError);
  }
  EXPECT_EQ(resolve_device(DeviceOptions::Kind::host), DeviceKind::host);
}

}  // namespace
}  // namespace headrace
