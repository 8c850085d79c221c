// SPDX-License-Identifier: Apache-2.0
// What a kernel launch is to the emulation, between the launch function of <cuda_runtime.h> and the executor.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include "tests/emulation/dim3.h"

namespace headrace::emulation {

constexpr size_t kDefaultSharedBytes = 48 * 1024;
constexpr size_t kMostSharedBytes = 227 * 1024;
constexpr unsigned kMostThreads = 1024;

struct Launch {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  const void* kernel = nullptr;  ///< the function's address: its identity
  const char* signature = "";    ///< with the kernel's parameter types in it, for messages
};

/// Checks the launch as the runtime does and puts it into the stream. `thread` runs one thread of the kernel.
cudaError_t enqueue_kernel(cudaStream_t stream, const Launch& launch, std::function<void()> thread);

}  // namespace headrace::emulation
