// SPDX-License-Identifier: Apache-2.0
// Streams, events and memory of the emulated GPU keep CUDA's promises.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "tests/emulation/self_test.h"

namespace headrace::emulation {
namespace {

/// A host function that waits until it is let go.
struct Gate {
  std::atomic<bool> open{false};
  static void wait(void* gate) {
    while (!static_cast<Gate*>(gate)->open) std::this_thread::yield();
  }
};

struct StreamPair : testing::Test {
  StreamPair() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDefault), cudaSuccess);
  }
  ~StreamPair() override {
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    cudaEventDestroy(event);
    reset_device();
  }
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t event = nullptr;
  Gate gate;
};

__global__ void increment(int* x) {
  *x += 1;
}
__global__ void double_it(int* x) {
  *x *= 2;
}

cudaLaunchConfig_t one_thread(cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = 1;
  config.stream = stream;
  return config;
}

TEST_F(StreamPair, WorkOfAStreamRunsInOrderAndBesideTheHost) {
  const DeviceArray<int> x(std::vector<int>{0});
  int result = -1;
  ASSERT_EQ(cudaLaunchHostFunc(first, &Gate::wait, &gate), cudaSuccess);
  const cudaLaunchConfig_t config = one_thread(first);
  int* const pointer = x;
  ASSERT_EQ(cudaLaunchKernelEx(&config, increment, pointer), cudaSuccess);
  ASSERT_EQ(cudaLaunchKernelEx(&config, double_it, pointer), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(&result, x, sizeof(int), cudaMemcpyDeviceToHost, first), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(first), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(second), cudaSuccess);
  EXPECT_EQ(x[0], 0);
  gate.open = true;
  ASSERT_EQ(cudaStreamSynchronize(first), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(first), cudaSuccess);
  EXPECT_EQ(result, 2);
}

TEST_F(StreamPair, AStreamWaitsForTheEventAsItWasRecordedThen) {
  const DeviceArray<int> x(std::vector<int>{5});
  int* const pointer = x;
  ASSERT_EQ(cudaLaunchHostFunc(first, &Gate::wait, &gate), cudaSuccess);
  const cudaLaunchConfig_t on_first = one_thread(first), on_second = one_thread(second);
  ASSERT_EQ(cudaLaunchKernelEx(&on_first, increment, pointer), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  ASSERT_EQ(cudaLaunchKernelEx(&on_second, double_it, pointer), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  gate.open = true;
  ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(x[0], 12);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

TEST_F(StreamPair, AnEventThatWasNeverRecordedHoldsNobodyUp) {
  ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST_F(StreamPair, TheTimeBetweenTwoEventsIsThatOfTheWorkBetweenThem) {
  cudaEvent_t end = nullptr;
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, event, end), cudaErrorInvalidResourceHandle);
  cudaEventRecord(event, first);
  cudaLaunchHostFunc(
      first, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }, nullptr);
  cudaEventRecord(end, first);
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  ASSERT_EQ(cudaEventElapsedTime(&ms, event, end), cudaSuccess);
  EXPECT_GE(ms, 5.0f);
  cudaEventDestroy(end);
}

TEST_F(StreamPair, AnEventMayGoWhileAStreamStillWaitsForIt) {
  cudaEvent_t passing = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&passing, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(first, &Gate::wait, &gate), cudaSuccess);
  cudaEventRecord(passing, first);
  cudaStreamWaitEvent(second, passing, 0);
  EXPECT_EQ(cudaEventDestroy(passing), cudaSuccess);
  gate.open = true;
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
}

__global__ void half_a_barrier() {
  if (threadIdx.x < 16) __syncthreads();
}

TEST_F(StreamPair, AfterAFaultWorkIsSkippedAndNobodyWaitsForEver) {
  const DeviceArray<int> x(std::vector<int>{1});
  int* const pointer = x;
  ASSERT_EQ(cudaLaunchHostFunc(first, &Gate::wait, &gate), cudaSuccess);
  cudaLaunchConfig_t config = one_thread(first);
  config.blockDim = 32;
  ASSERT_EQ(cudaLaunchKernelEx(&config, half_a_barrier), cudaSuccess);
  ASSERT_EQ(cudaLaunchKernelEx(&config, increment, pointer), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  gate.open = true;
  EXPECT_EQ(cudaStreamSynchronize(second), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorLaunchFailure);
  EXPECT_EQ(x[0], 1);
  reset_device();
}

TEST(DeviceMemory, IsLimitedAndGivenBack) {
  const size_t before = device_bytes_in_use();
  set_device_memory(before + 1000);
  void *memory = nullptr, *more = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 600), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&more, 600), cudaErrorMemoryAllocation);
  size_t free_bytes = 0, total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(free_bytes, 400u);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&more, 600), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
  EXPECT_EQ(device_bytes_in_use(), before);
  set_device_memory(size_t(8) << 30);
}

TEST(DeviceMemory, OfAPoolIsLimitedByThePool) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  properties.maxSize = 4096;
  cudaMemPool_t pool = nullptr;
  ASSERT_EQ(cudaMemPoolCreate(&pool, &properties), cudaSuccess);
  void *memory = nullptr, *more = nullptr;
  EXPECT_EQ(cudaMallocFromPoolAsync(&memory, 4000, pool, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMallocFromPoolAsync(&more, 4000, pool, nullptr), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFreeAsync(memory, nullptr), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(cudaMallocFromPoolAsync(&more, 4000, pool, nullptr), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST(DeviceMemory, HoldsNaNBeforeItIsWritten) {
  const DeviceArray<float> x(10);
  for (const float value : x.values()) EXPECT_TRUE(std::isnan(value));
}

TEST(DeviceMemory, CopiesMustBeWhatTheySayAndStayInsideAnAllocation) {
  const DeviceArray<float> x(10);
  float host[16] = {1};
  EXPECT_EQ(cudaMemcpy(x, host, 40, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(x, host, 40, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(x, host, 44, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x, host, 44, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x, host, 40, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(x + 1, 0, 40), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host, 0, 4), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(x + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(HostMemory, IsRegisteredOnce) {
  std::vector<char> memory(8192);
  EXPECT_EQ(cudaHostRegister(memory.data(), 8192, cudaHostRegisterPortable), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(memory.data() + 4096, 100, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaErrorHostMemoryNotRegistered);
  (void)cudaGetLastError();
}

TEST(EmulatedGpu, SaysWhatItIs) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 1);
  cudaDeviceProp found{};
  ASSERT_EQ(cudaGetDeviceProperties(&found, 0), cudaSuccess);
  EXPECT_STREQ(found.name, "emulated GPU");
  EXPECT_EQ(found.major, 9);
  EXPECT_EQ(cudaGetDeviceProperties(&found, 1), cudaErrorInvalidDevice);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice");
  (void)cudaGetLastError();
}

TEST(EmulatedGpuDeathTest, MayBeMissing) {
  // A process of its own, which has not looked for the GPU yet.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("HEADRACE_EMULATED_GPUS", "0", 1);
        int count = 1;
        void* memory = nullptr;
        const bool missing = cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0 &&
                             cudaMalloc(&memory, 1) == cudaErrorNoDevice;
        std::exit(missing ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace::emulation
