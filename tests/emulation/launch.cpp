// SPDX-License-Identifier: Apache-2.0
// The checks of a launch, and its way into a stream.
#include "tests/emulation/launch.h"

#include <map>
#include <mutex>
#include <utility>

#include "tests/emulation/device_state.h"
#include "tests/emulation/executor.h"
#include "tests/emulation/stream.h"

namespace headrace::emulation {
namespace {

/// The shared memory that kernels asked for beyond the default.
struct Permits {
  std::mutex mutex;
  std::map<const void*, size_t> shared_bytes;
};
Permits& permits() {
  static Permits* const instance = new Permits;
  return *instance;
}

size_t permitted_shared_bytes(const void* kernel) {
  const std::lock_guard lock(permits().mutex);
  const auto found = permits().shared_bytes.find(kernel);
  return found == permits().shared_bytes.end() ? kDefaultSharedBytes : found->second;
}

cudaError_t check_shape(const Launch& launch) {
  const dim3 &grid = launch.grid, &block = launch.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0)
    return cudaErrorInvalidConfiguration;
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
  if (block.x > kMostThreads || block.y > kMostThreads || block.z > 64) return cudaErrorInvalidConfiguration;
  if (block.x * block.y * block.z > kMostThreads) return cudaErrorInvalidConfiguration;
  if (launch.shared_bytes > permitted_shared_bytes(launch.kernel)) return cudaErrorInvalidValue;
  return cudaSuccess;
}

}  // namespace

cudaError_t enqueue_kernel(cudaStream_t stream, const Launch& launch, std::function<void()> thread) {
  if (const cudaError_t error = standing_error()) return note(error);
  if (const cudaError_t error = check_shape(launch)) return note(error);
  stream_or_default(stream).enqueue_work([launch, thread = std::move(thread)] {
    count_kernel();
    const std::string fault = Executor::instance().run(launch, thread);
    if (!fault.empty()) set_fault(fault);
  });
  return cudaSuccess;
}

}  // namespace headrace::emulation

using namespace headrace::emulation;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t error = standing_error()) return note(error);
  if (!kernel) return note(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;  // a hint
  if (value < 0 || size_t(value) > kMostSharedBytes) return note(cudaErrorInvalidValue);
  const std::lock_guard lock(permits().mutex);
  permits().shared_bytes[kernel] = size_t(value);
  return cudaSuccess;
}
