// SPDX-License-Identifier: Apache-2.0
// Stand-in for the toolkit's header of the same name in the emulated build: the runtime, launches, and the
// words of CUDA C++ that kernels are written in, so that a .cu file compiles as C++.
#pragma once

#include <cuda_runtime_api.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/emulation/device_words.h"
#include "tests/emulation/launch.h"

struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;  ///< must be 0 here
};

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args&&... args) {
  using Values = std::tuple<std::decay_t<Params>...>;
  static_assert(sizeof(Values) <= 4096, "a kernel takes at most 4 KiB of parameters");
  static_assert((std::is_trivially_copyable_v<std::decay_t<Params>> && ...),
                "parameters go to the device as bytes");
  static_assert((!std::is_reference_v<Params> && ...), "a kernel cannot take a reference to host memory");
  const headrace::emulation::Launch launch{.grid = config->gridDim,
                                           .block = config->blockDim,
                                           .shared_bytes = config->dynamicSmemBytes,
                                           .kernel = reinterpret_cast<const void*>(kernel),
                                           .signature = __PRETTY_FUNCTION__};
  if (config->numAttrs != 0) return cudaErrorNotSupported;
  return headrace::emulation::enqueue_kernel(
      config->stream, launch,
      [kernel, values = Values(std::forward<Args>(args)...)] { std::apply(kernel, values); });
}
