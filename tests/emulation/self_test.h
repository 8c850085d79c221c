// SPDX-License-Identifier: Apache-2.0
// What the tests of the emulation itself share: launch and wait, small arrays in device memory.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/emulation/control.h"

namespace headrace::emulation {

/// Launches on the default stream and waits; the runtime's answer.
template <class... Params, class... Args>
cudaError_t run(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, const Args&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  if (const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Params(args)...)) return error;
  return cudaStreamSynchronize(nullptr);
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t elems) : elems_(elems) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, elems * sizeof(T)), cudaSuccess);
    data_ = static_cast<T*>(memory);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    std::copy(values.begin(), values.end(), data_);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  operator T*() const { return data_; }  // NOLINT: as a kernel takes it
  [[nodiscard]] std::vector<T> values() const { return {data_, data_ + elems_}; }

 private:
  T* data_ = nullptr;
  size_t elems_;
};

/// A kernel's fault stays with the device until it is forgotten.
class Faults : public testing::Test {
 protected:
  // A fork has no streams' threads: a test of the process's end begins a process of its own.
  Faults() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override { reset_device(); }
};

}  // namespace headrace::emulation
