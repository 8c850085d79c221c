// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(CudaInfo, BuildInfoNamesTheToolkitOrNone) {
  EXPECT_THAT(cuda_build_info(), testing::AnyOf("none", testing::StartsWith("CUDA 1")));
}

TEST(CudaInfo, GpusAreOnlyListedByABuildThatCanSeeThem) {
  const std::vector<GpuInfo> gpus = list_gpus();  // no driver and no GPU: an empty list, no error
  if (cuda_build_info() == "none") {
    EXPECT_TRUE(gpus.empty());
  }
  for (const GpuInfo& gpu : gpus) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_GT(gpu.memory_bytes, 0u);
    EXPECT_GE(gpu.capability_major, 1);
  }
}

}  // namespace
}  // namespace headrace
