// SPDX-License-Identifier: Apache-2.0
// How a kernel is launched: one way, checked, with the call site in the error. Kernels use dynamic shared
// memory only, so that its size is always said here.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "headrace/error.h"
#include "kernels/cuda/check.h"

namespace headrace::kernels::cuda {

/// A stream and the place in the code that launches on it.
struct LaunchOn {
  cudaStream_t stream;
  headrace::cuda::Where where;
  LaunchOn(cudaStream_t on, headrace::cuda::Where at = headrace::cuda::Where::current())  // NOLINT: a stream
      : stream(on), where(at) {}
};

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  ///< per block, at most 227 KiB on sm_90, 99 KiB on sm_86 and sm_89
};

/// Above this a kernel must ask before its launch.
constexpr size_t kDefaultSharedBytes = 48 * 1024;

/// kernel<<<grid, block, shared, stream>>>(args...). A launch of no blocks or no threads is the caller's
/// fault: there is nothing to do then, and the caller returns before.
template <class... Params, class... Args>
void launch(const LaunchOn& on, void (*kernel)(Params...), const LaunchShape& shape, Args&&... args) {
  using headrace::cuda::check;
  if (shape.shared_bytes > kDefaultSharedBytes) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, int(shape.shared_bytes)),
          "a kernel's shared memory", on.where);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = on.stream;
  check(cudaLaunchKernelEx(&config, kernel, Params(args)...), "launch of a kernel", on.where);
}

constexpr int64_t ceil_div(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}
/// Grids are 32 bit wide in x.
inline unsigned blocks(int64_t n) {
  HEADRACE_CHECK(n > 0 && n <= INT32_MAX, "a grid has between one and 2^31 - 1 blocks");
  return unsigned(n);
}

}  // namespace headrace::kernels::cuda
