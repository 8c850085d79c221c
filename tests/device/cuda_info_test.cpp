// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(CudaInfo, BuildInfoNamesTheToolkitOrNone) {
  if (built_with_cuda()) {
    EXPECT_THAT(cuda_build_info(), testing::MatchesRegex("CUDA [0-9]+.*; kernels for [0-9].*"));
  } else {
    EXPECT_EQ(cuda_build_info(), "none");
    EXPECT_EQ(cuda_architectures(), "");
  }
}

TEST(CudaInfo, GpusAreOnlyListedByABuildThatCanSeeThem) {
  const std::vector<GpuInfo> gpus = list_gpus();  // no driver and no GPU: an empty list, no error
  if (!built_with_cuda()) {
    EXPECT_TRUE(gpus.empty());
  }
  for (const GpuInfo& gpu : gpus) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_GT(gpu.memory_bytes, 0u);
    EXPECT_GE(gpu.capability_major, 1);
  }
  if (gpus.empty()) {
    EXPECT_FALSE(has_usable_gpu());
  }
}

// CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility".
TEST(CudaInfo, MachineCodeServesItsMajorVersionFromItsMinorOneUp) {
  EXPECT_TRUE(code_runs_on("80-real", 8, 0));
  EXPECT_TRUE(code_runs_on("80-real", 8, 9));
  EXPECT_FALSE(code_runs_on("86-real", 8, 0));
  EXPECT_FALSE(code_runs_on("80-real", 9, 0));
  EXPECT_FALSE(code_runs_on("80-real", 7, 5));
}

TEST(CudaInfo, PtxServesEverythingNewer) {
  EXPECT_TRUE(code_runs_on("90-virtual", 9, 0));
  EXPECT_TRUE(code_runs_on("90-virtual", 12, 0));
  EXPECT_FALSE(code_runs_on("90-virtual", 8, 9));
  EXPECT_TRUE(code_runs_on("90", 10, 0));
  EXPECT_TRUE(code_runs_on("100-real", 10, 3));
}

TEST(CudaInfo, OneEntryOfTheListIsEnough) {
  EXPECT_TRUE(code_runs_on("80-real,86-real,90-real,90-virtual", 8, 7));
  EXPECT_TRUE(code_runs_on("80-real,86-real,90-real,90-virtual", 10, 0));
  EXPECT_FALSE(code_runs_on("86-real,90", 8, 0));
  EXPECT_TRUE(code_runs_on("90a-real", 9, 0));
  EXPECT_FALSE(code_runs_on("90a", 10, 0));
  EXPECT_FALSE(code_runs_on("", 9, 0));
}

}  // namespace
}  // namespace headrace
