// SPDX-License-Identifier: Apache-2.0
// The runtime's memory functions: allocations, pools, registered host memory, copies.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/emulation/control.h"
#include "tests/emulation/device_state.h"
#include "tests/emulation/pool.h"
#include "tests/emulation/stream.h"

using namespace headrace::emulation;

namespace {

/// Registered host memory, by address.
struct Registered {
  std::mutex mutex;
  std::map<uintptr_t, size_t> bytes;
};
Registered& registered() {
  static Registered* const instance = new Registered;  // memory may be unregistered by statics
  return *instance;
}

/// Copies whose kind is not what the pointers are fail on a GPU, or worse.
bool kind_fits(cudaMemcpyKind kind, const void* to, const void* from, size_t bytes) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const auto fits = [&](const void* pointer, bool device) {
    // A range that begins in an allocation must end there, whatever the kind.
    if (kind == cudaMemcpyDefault) device = touches_device_memory(pointer, bytes);
    return device ? is_device_memory(pointer, bytes) : !touches_device_memory(pointer, bytes);
  };
  return fits(to, to_device) && fits(from, from_device);
}

}  // namespace

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (const cudaError_t error = standing_error()) return note(error);
  *total_bytes = device_memory_bytes();
  *free_bytes = *total_bytes - std::min(*total_bytes, device_bytes_in_use());
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return cudaMallocFromPoolAsync(pointer, bytes, nullptr, nullptr);
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  cudaMemPool_t pool = nullptr;
  cudaDeviceGetDefaultMemPool(&pool, 0);
  return cudaMallocFromPoolAsync(pointer, bytes, pool, stream);
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t) {
  if (const cudaError_t error = standing_error()) return note(error);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  *pointer = allocate(bytes, pool);
  return note(*pointer ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* pointer) {
  cudaDeviceSynchronize();  // work in flight may use it
  if (pointer && !release(pointer)) return note(cudaErrorInvalidValue);
  return note(standing_error());
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  if (!pointer) return cudaSuccess;
  if (!is_device_memory(pointer, 1)) return note(cudaErrorInvalidValue);
  stream_or_default(stream).enqueue([pointer] { release(pointer); });
  return note(standing_error());
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (const cudaError_t error = standing_error()) return note(error);
  if (properties->allocType != cudaMemAllocationTypePinned ||
      properties->handleTypes != cudaMemHandleTypeNone ||
      properties->location.type != cudaMemLocationTypeDevice || properties->location.id != 0)
    return note(cudaErrorInvalidValue);
  *pool = new CUmemPoolHandle_st{.most_bytes = properties->maxSize};
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  if (!pool) return note(cudaErrorInvalidValue);
  cudaDeviceSynchronize();
  if (pool->used_bytes == 0) delete pool;
  return note(standing_error());
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (!pool || !value) return note(cudaErrorInvalidValue);
  if (attribute == cudaMemPoolAttrReleaseThreshold)
    std::memcpy(&pool->release_threshold, value, sizeof(uint64_t));
  return note(standing_error());
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (!pool || !value) return note(cudaErrorInvalidValue);
  const uint64_t answer =
      attribute == cudaMemPoolAttrReleaseThreshold ? pool->release_threshold : pool->used_bytes;
  std::memcpy(value, &answer, sizeof(answer));
  return note(standing_error());
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return note(pool ? standing_error() : cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static CUmemPoolHandle_st default_pool;
  if (device != 0) return note(cudaErrorInvalidDevice);
  *pool = &default_pool;
  return note(standing_error());
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  if (const cudaError_t error = standing_error()) return note(error);
  if (!pointer || bytes == 0) return note(cudaErrorInvalidValue);
  const std::lock_guard lock(registered().mutex);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto next = registered().bytes.lower_bound(address);
  if (next != registered().bytes.end() && next->first < address + bytes)
    return note(cudaErrorHostMemoryAlreadyRegistered);
  if (next != registered().bytes.begin() && std::prev(next)->first + std::prev(next)->second > address)
    return note(cudaErrorHostMemoryAlreadyRegistered);
  registered().bytes[address] = bytes;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  const std::lock_guard lock(registered().mutex);
  const bool known = registered().bytes.erase(reinterpret_cast<uintptr_t>(pointer)) > 0;
  return note(known ? standing_error() : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  if (const cudaError_t error = standing_error()) return note(error);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  return note(posix_memalign(pointer, 4096, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void* pointer) {
  cudaDeviceSynchronize();
  std::free(pointer);
  return note(standing_error());
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t error = standing_error()) return note(error);
  if (bytes == 0) return cudaSuccess;
  if (!to || !from || !kind_fits(kind, to, from, bytes)) return note(cudaErrorInvalidValue);
  stream_or_default(stream).enqueue_work([=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return error;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = standing_error()) return note(error);
  if (bytes == 0) return cudaSuccess;
  if (!is_device_memory(to, bytes)) return note(cudaErrorInvalidValue);
  stream_or_default(stream).enqueue_work([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (const cudaError_t error = cudaMemsetAsync(to, value, bytes, nullptr)) return error;
  return cudaStreamSynchronize(nullptr);
}
