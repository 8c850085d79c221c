// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/device_state.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/emulation/control.h"
#include "tests/emulation/pool.h"

namespace headrace::emulation {
namespace {

constexpr size_t kMiB = size_t(1) << 20;
/// Fresh memory holds NaN patterns, as far as it costs little.
constexpr size_t kMostSpoiledBytes = 256 * kMiB;

size_t environment_number(const char* name, size_t otherwise) {
  const char* const text = std::getenv(name);
  size_t value = 0;
  if (!text || std::from_chars(text, text + std::strlen(text), value).ec != std::errc()) return otherwise;
  return value;
}

struct Allocation {
  size_t bytes;
  cudaMemPool_t pool;
};

struct State {
  const bool present = environment_number("HEADRACE_EMULATED_GPUS", 1) > 0;
  std::atomic<bool> failed{false};
  std::atomic<size_t> kernels{0};

  std::mutex mutex;  ///< of all below
  std::string fault;
  size_t memory_bytes = environment_number("HEADRACE_EMULATED_MEMORY_MIB", 8192) * kMiB;
  size_t used_bytes = 0;
  std::map<uintptr_t, Allocation> allocations;
};

State& state() {
  static State* const instance = new State;  // streams may outlive statics
  return *instance;
}

thread_local cudaError_t t_last_error = cudaSuccess;

/// The allocation that begins at or before the address; with the mutex held.
const std::pair<const uintptr_t, Allocation>* allocation_before(uintptr_t address) {
  auto after = state().allocations.upper_bound(address);
  return after == state().allocations.begin() ? nullptr : &*std::prev(after);
}

}  // namespace

bool device_present() {
  return state().present;
}

size_t device_memory_bytes() {
  const std::lock_guard lock(state().mutex);
  return state().memory_bytes;
}

void set_fault(const std::string& message) {
  const std::lock_guard lock(state().mutex);
  std::fprintf(stderr, "emulated GPU: %s\n", message.c_str());
  if (state().fault.empty()) state().fault = message;
  state().failed = true;
}

bool has_fault() {
  return state().failed;
}

std::string last_fault() {
  const std::lock_guard lock(state().mutex);
  return state().fault;
}

void reset_device() {
  const std::lock_guard lock(state().mutex);
  state().fault.clear();
  state().failed = false;
  t_last_error = cudaSuccess;
}

void set_device_memory(size_t bytes) {
  const std::lock_guard lock(state().mutex);
  state().memory_bytes = bytes;
}

size_t device_bytes_in_use() {
  const std::lock_guard lock(state().mutex);
  return state().used_bytes;
}

size_t kernels_launched() {
  return state().kernels;
}

void count_kernel() {
  ++state().kernels;
}

cudaError_t standing_error() {
  if (!device_present()) return cudaErrorNoDevice;
  return has_fault() ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) t_last_error = error;
  return error;
}

bool is_device_memory(const void* pointer, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto* const found = allocation_before(address);
  return found && address + bytes <= found->first + found->second.bytes;
}

bool touches_device_memory(const void* pointer, size_t bytes) {
  if (bytes == 0) return false;
  const std::lock_guard lock(state().mutex);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto* const found = allocation_before(address + bytes - 1);
  return found && found->first + found->second.bytes > address;
}

void* allocate(size_t bytes, cudaMemPool_t pool) {
  const std::lock_guard lock(state().mutex);
  if (bytes > state().memory_bytes - std::min(state().memory_bytes, state().used_bytes)) return nullptr;
  if (pool && pool->most_bytes > 0 && bytes > pool->most_bytes - pool->used_bytes) return nullptr;
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes) != 0) return nullptr;
  std::memset(memory, 0xff, std::min(bytes, kMostSpoiledBytes));
  state().allocations[reinterpret_cast<uintptr_t>(memory)] = {bytes, pool};
  state().used_bytes += bytes;
  if (pool) pool->used_bytes += bytes;
  return memory;
}

bool release(void* pointer) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == state().allocations.end()) return false;
  state().used_bytes -= found->second.bytes;
  if (found->second.pool) found->second.pool->used_bytes -= found->second.bytes;
  state().allocations.erase(found);
  std::free(pointer);
  return true;
}

}  // namespace headrace::emulation

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  headrace::emulation::t_last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t standing = headrace::emulation::standing_error();
  return standing == cudaErrorLaunchFailure ? standing : headrace::emulation::t_last_error;
}
