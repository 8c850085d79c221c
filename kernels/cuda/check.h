// SPDX-License-Identifier: Apache-2.0
// CUDA's error codes as DeviceError: one complete line with what was tried, where, CUDA's name for the fault
// and what to do about it. Also what the device module uses.
#pragma once

#include <cuda_runtime.h>

#include <source_location>
#include <string>

namespace headrace::cuda {

using Where = std::source_location;

/// Throws DeviceError unless `error` is cudaSuccess. `what`: "copy of 4096 bytes to the device".
void check(cudaError_t error, const std::string& what, Where where = Where::current());

/// The common path makes no string.
inline void check(cudaError_t error, const char* what, Where where = Where::current()) {
  if (error != cudaSuccess) [[unlikely]]
    check(error, std::string(what), where);
}

}  // namespace headrace::cuda
