// SPDX-License-Identifier: Apache-2.0
// Every rule that the emulation watches: a small kernel that breaks it is found out, and the same kernel put
// right is not.
#include <gmock/gmock.h>

#include <cmath>

#include "kernels/cuda/port.h"
#include "tests/emulation/self_test.h"

namespace headrace::emulation {
namespace {

using kernels::cuda::kAllLanes;
using kernels::cuda::shared_memory;
using testing::AllOf;
using testing::HasSubstr;

void expect_fault(cudaError_t error, const testing::Matcher<std::string>& message) {
  EXPECT_EQ(error, cudaErrorLaunchFailure);
  EXPECT_THAT(last_fault(), message);
}

__global__ void barrier_of_some(int first, int end) {
  if (int(threadIdx.x) >= first && int(threadIdx.x) < end) __syncthreads();
}

TEST_F(Faults, ABarrierThatSomeThreadsNeverReachIsFound) {
  EXPECT_EQ(run(barrier_of_some, 1, 64, 0, 0, 64), cudaSuccess);
  EXPECT_EQ(run(barrier_of_some, 1, 64, 0, 0, 0), cudaSuccess);
  expect_fault(run(barrier_of_some, 3, 64, 0, 0, 40),
               AllOf(HasSubstr("the threads of a block do not meet"), HasSubstr("__syncthreads"),
                     HasSubstr("fault_test.cpp:"), HasSubstr("barrier_of_some"), HasSubstr("block (0,0,0)"),
                     HasSubstr("grid (3,1,1)"), HasSubstr("has ended")));
}

TEST_F(Faults, ABarrierReachedAfterOthersHaveEndedIsFound) {
  expect_fault(run(barrier_of_some, 1, 64, 0, 1, 64),
               AllOf(HasSubstr("thread (1,0,0) at __syncthreads"), HasSubstr("1 threads have ended")));
}

constexpr int kLine = __LINE__;
__global__ void two_barriers(int split) {
  if (int(threadIdx.x) < split) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_F(Faults, DivergentBarriersNameBothPlaces) {
  EXPECT_EQ(run(two_barriers, 2, 96, 0, 96), cudaSuccess);
  expect_fault(
      run(two_barriers, 2, 96, 0, 32),
      AllOf(HasSubstr("thread (0,0,0) at __syncthreads (fault_test.cpp:" + std::to_string(kLine + 3)),
            HasSubstr("thread (32,0,0) at __syncthreads (fault_test.cpp:" + std::to_string(kLine + 5))));
}

__global__ void shuffle_of_some(int lanes, float* sum) {
  float x = 1.0f;
  if (int(threadIdx.x) % 32 < lanes) x += __shfl_xor_sync(kAllLanes, x, 1);
  sum[threadIdx.x] = x;
}

TEST_F(Faults, AWarpFunctionThatSomeLanesNeverReachIsFound) {
  const DeviceArray<float> sum(64);
  EXPECT_EQ(run(shuffle_of_some, 1, 64, 0, 32, sum), cudaSuccess);
  expect_fault(run(shuffle_of_some, 1, 64, 0, 31, sum),
               AllOf(HasSubstr("the lanes of a warp do not meet"), HasSubstr("__shfl_xor_sync"),
                     HasSubstr("thread (31,0,0) has ended")));
}

TEST_F(Faults, AWarpOfFewerThan32ThreadsCannotMeet) {
  const DeviceArray<float> sum(64);
  expect_fault(run(shuffle_of_some, 1, 48, 0, 32, sum), HasSubstr("only 16 lanes"));
}

__global__ void shuffle_with_mask(unsigned mask) {
  __shfl_sync(mask, 1.0f, 0);
}

TEST_F(Faults, AMaskThatLeavesLanesOutIsFound) {
  EXPECT_EQ(run(shuffle_with_mask, 1, 32, 0, kAllLanes), cudaSuccess);
  expect_fault(run(shuffle_with_mask, 1, 32, 0, 0xffffu), HasSubstr("mask"));
}

__global__ void two_votes(int split) {
  if (int(threadIdx.x) < split) {
    __any_sync(kAllLanes, 1);
  } else {
    __all_sync(kAllLanes, 1);
  }
}

TEST_F(Faults, LanesAtDifferentWarpFunctionsAreFound) {
  EXPECT_EQ(run(two_votes, 1, 64, 0, 32), cudaSuccess);
  expect_fault(run(two_votes, 1, 64, 0, 16),
               AllOf(HasSubstr("thread (0,0,0) at __any_sync"), HasSubstr("thread (16,0,0) at __all_sync")));
}

__global__ void barrier_against_warp(int split) {
  if (int(threadIdx.x) < split) {
    __syncthreads();
    __syncwarp();
  } else {
    __syncwarp();
    __syncthreads();
  }
}

TEST_F(Faults, ABarrierAndAWarpFunctionThatWaitForEachOtherAreFound) {
  EXPECT_EQ(run(barrier_against_warp, 1, 32, 0, 32), cudaSuccess);
  expect_fault(run(barrier_against_warp, 1, 32, 0, 8), AllOf(HasSubstr("thread (0,0,0) at __syncthreads"),
                                                             HasSubstr("thread (8,0,0) at __syncwarp")));
}

__global__ void write_shared(int at) {
  if (threadIdx.x == 0) shared_memory<float>()[at] = 1.0f;
}

TEST_F(Faults, AWriteOutsideSharedMemoryIsFound) {
  EXPECT_EQ(run(write_shared, 1, 32, 100, 24), cudaSuccess);
#ifdef __SANITIZE_ADDRESS__
  EXPECT_DEATH(run(write_shared, 1, 32, 100, 25), "use-after-poison|AddressSanitizer");
  EXPECT_DEATH(run(write_shared, 1, 32, 100, -1), "use-after-poison|AddressSanitizer");
#else
  expect_fault(run(write_shared, 1, 32, 100, 25), HasSubstr("at byte 100"));
  reset_device();
  expect_fault(run(write_shared, 1, 32, 100, -1), HasSubstr("at byte -1"));
#endif
}

#ifdef __SANITIZE_ADDRESS__
__global__ void read_shared(int at, float* x) {
  x[0] = shared_memory<float>()[at];
}

TEST_F(Faults, AReadOutsideSharedMemoryIsFound) {
  const DeviceArray<float> x(1);
  EXPECT_EQ(run(read_shared, 1, 1, 128, 31, x), cudaSuccess);
  EXPECT_DEATH(run(read_shared, 1, 1, 128, 32, x), "use-after-poison|AddressSanitizer");
}

TEST_F(Faults, AnOverrunOfDeviceMemoryIsFound) {
  const DeviceArray<float> sum(33);
  EXPECT_DEATH(run(shuffle_of_some, 1, 64, 0, 32, sum), "AddressSanitizer");
}
#endif

__global__ void exchange_through_shared(bool wait, bool wait_again, float* x) {
  float* const shared = shared_memory<float>();
  for (int round = 0; round < 2; ++round) {
    shared[threadIdx.x] = float(round);
    if (wait) __syncthreads();
    x[blockIdx.x * blockDim.x + threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
    if (wait_again) __syncthreads();
  }
}

TEST_F(Faults, AMissingBarrierShows) {
  const DeviceArray<float> x(128);
  const auto all_are_one = [&] {
    const std::vector<float> values = x.values();
    return std::all_of(values.begin(), values.end(), [](float v) { return v == 1.0f; });
  };
  EXPECT_EQ(run(exchange_through_shared, 2, 64, 64 * sizeof(float), true, true, x), cudaSuccess);
  EXPECT_TRUE(all_are_one());
  EXPECT_EQ(run(exchange_through_shared, 2, 64, 64 * sizeof(float), false, true, x), cudaSuccess);
  EXPECT_FALSE(all_are_one());
}

__global__ void first_to_all(int writer, bool wait, float* x) {
  float* const shared = shared_memory<float>();
  if (int(threadIdx.x) == writer) shared[0] = 3.0f;
  if (wait) __syncthreads();
  x[blockIdx.x * blockDim.x + threadIdx.x] = shared[0];
}

TEST_F(Faults, AMissingBarrierShowsWhicheverThreadWrites) {
  for (const int writer : {0, 31, 63}) {
    const DeviceArray<float> x(128);
    EXPECT_EQ(run(first_to_all, 2, 64, 4, writer, true, x), cudaSuccess);
    for (const float value : x.values()) ASSERT_EQ(value, 3.0f);
    EXPECT_EQ(run(first_to_all, 2, 64, 4, writer, false, x), cudaSuccess);
    const std::vector<float> values = x.values();
    EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); })) << writer;
  }
}

__global__ void copy_misaligned(int shared_offset, int from_offset, const float* from) {
  kernels::cuda::copy_async_16(shared_memory<float>() + shared_offset, from + from_offset);
  kernels::cuda::copy_async_commit();
  kernels::cuda::copy_async_wait<0>();
}

TEST_F(Faults, AnAsynchronousCopyToAWrongAddressIsFound) {
  const DeviceArray<float> from(std::vector<float>(32, 1.0f));
  EXPECT_EQ(run(copy_misaligned, 1, 1, 32, 4, 4, from), cudaSuccess);
  expect_fault(run(copy_misaligned, 1, 1, 32, 1, 4, from), HasSubstr("not 16-byte aligned"));
  reset_device();
  expect_fault(run(copy_misaligned, 1, 1, 32, 4, 1, from), HasSubstr("not 16-byte aligned"));
  reset_device();
  expect_fault(run(copy_misaligned, 1, 1, 28, 4, 4, from), HasSubstr("outside the block's shared memory"));
}

__global__ void load_rows(int stride) {
  uint32_t r[4];
  kernels::cuda::load_matrices(r, shared_memory<bf16>() + int(threadIdx.x) * stride);
}

TEST_F(Faults, AMatrixRowAtAWrongAddressIsFound) {
  EXPECT_EQ(run(load_rows, 1, 32, 32 * 16, 8), cudaSuccess);
  expect_fault(run(load_rows, 1, 32, 32 * 24, 12), HasSubstr("not 16-byte aligned"));
  reset_device();
  expect_fault(run(load_rows, 1, 32, 31 * 16, 8), AllOf(HasSubstr("outside"), HasSubstr("thread (31,0,0)")));
}

TEST_F(Faults, AFaultStaysWithTheDeviceAndTheNextKernelAfterAResetRuns) {
  const DeviceArray<float> sum(64);
  EXPECT_EQ(run(barrier_of_some, 1, 64, 0, 0, 1), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaMemset(sum, 0, 4), cudaErrorLaunchFailure);
  EXPECT_EQ(run(shuffle_of_some, 1, 64, 0, 32, sum), cudaErrorLaunchFailure);
  reset_device();
  EXPECT_EQ(last_fault(), "");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(run(shuffle_of_some, 1, 64, 0, 32, sum), cudaSuccess);
  for (const float value : sum.values()) EXPECT_EQ(value, 2.0f);
}

}  // namespace
}  // namespace headrace::emulation
