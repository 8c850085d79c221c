// SPDX-License-Identifier: Apache-2.0
// What a launch may not ask for, and how launch() of kernels/cuda/launch.h asks.
#include "kernels/cuda/launch.h"

#include <gmock/gmock.h>

#include "headrace/error.h"
#include "kernels/cuda/port.h"
#include "tests/emulation/self_test.h"

namespace headrace::emulation {
namespace {

__global__ void count(unsigned* runs) {
  atomicAdd(runs, 1u);
}
__global__ void count_with_much_shared(unsigned* runs) {
  if (threadIdx.x == 0) kernels::cuda::shared_memory<char>()[100 * 1024 - 1] = 1;
  atomicAdd(runs, 1u);
}

class Launches : public Faults {
 protected:
  DeviceArray<unsigned> runs{std::vector<unsigned>{0}};
};

TEST_F(Launches, OfNothingAreRefused) {
  EXPECT_EQ(run(count, dim3(0), 32, 0, runs), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(count, dim3(1, 0), 32, 0, runs), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(count, 1, dim3(0), 0, runs), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(runs[0], 0u);
}

TEST_F(Launches, BeyondTheLimitsOfAGridOrBlockAreRefused) {
  EXPECT_EQ(run(count, 1, 1024, 0, runs), cudaSuccess);
  EXPECT_EQ(run(count, 1, 1025, 0, runs), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(count, 1, dim3(64, 17), 0, runs), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(count, dim3(1, 65536), 1, 0, runs), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(count, dim3(1, 1, 65536), 1, 0, runs), cudaErrorInvalidConfiguration);
  EXPECT_EQ(runs[0], 1024u);
}

TEST_F(Launches, MuchSharedMemoryMustBeAskedFor) {
  const auto* const kernel = reinterpret_cast<const void*>(&count_with_much_shared);
  EXPECT_EQ(run(count_with_much_shared, 1, 1, 100 * 1024, runs), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024),
            cudaSuccess);
  EXPECT_EQ(run(count_with_much_shared, 1, 1, 100 * 1024, runs), cudaSuccess);
  EXPECT_EQ(run(count_with_much_shared, 1, 1, 100 * 1024 + 1, runs), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1),
            cudaErrorInvalidValue);
  EXPECT_EQ(runs[0], 1u);
}

TEST_F(Launches, ThroughTheLaunchFunctionAskForSharedMemoryThemselves) {
  kernels::cuda::launch(cudaStream_t(nullptr), count_with_much_shared,
                        {.grid = 2, .block = 32, .shared_bytes = 200 * 1024}, runs);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(runs[0], 64u);
}

TEST_F(Launches, ThroughTheLaunchFunctionNameTheCallerWhenTheyFail) {
  try {
    kernels::cuda::launch(cudaStream_t(nullptr), count, {.grid = 1, .block = 2048}, runs);
    FAIL() << "a block of 2048 threads was launched";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("launch_test.cpp"));
    EXPECT_THAT(error.what(), testing::HasSubstr("cudaErrorInvalidConfiguration"));
  }
}

}  // namespace
}  // namespace headrace::emulation
