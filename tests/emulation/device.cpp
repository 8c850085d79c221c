// SPDX-License-Identifier: Apache-2.0
// The runtime's questions about the device, and the names of its errors.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <utility>

#include "tests/emulation/device_state.h"
#include "tests/emulation/launch.h"

using namespace headrace::emulation;

namespace {

constexpr int kMultiprocessors = 132;

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define HEADRACE_ERROR(error, text) \
  { error, #error, text }
constexpr ErrorText kErrors[] = {
    HEADRACE_ERROR(cudaSuccess, "no error"),
    HEADRACE_ERROR(cudaErrorInvalidValue, "invalid argument"),
    HEADRACE_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    HEADRACE_ERROR(cudaErrorInitializationError, "initialization error"),
    HEADRACE_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    HEADRACE_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    HEADRACE_ERROR(cudaErrorInsufficientDriver,
                   "CUDA driver version is insufficient for CUDA runtime version"),
    HEADRACE_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    HEADRACE_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    HEADRACE_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    HEADRACE_ERROR(cudaErrorNoKernelImageForDevice,
                   "no kernel image is available for execution on the device"),
    HEADRACE_ERROR(cudaErrorUnsupportedPtxVersion,
                   "the provided PTX was compiled with an unsupported toolchain."),
    HEADRACE_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    HEADRACE_ERROR(cudaErrorNotReady, "device not ready"),
    HEADRACE_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    HEADRACE_ERROR(cudaErrorHostMemoryAlreadyRegistered,
                   "part or all of the requested memory range is already mapped"),
    HEADRACE_ERROR(cudaErrorHostMemoryNotRegistered,
                   "pointer does not correspond to a registered memory region"),
    HEADRACE_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    HEADRACE_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    HEADRACE_ERROR(cudaErrorNotSupported, "operation not supported"),
    HEADRACE_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef HEADRACE_ERROR

const ErrorText& text_of(cudaError_t error) {
  for (const ErrorText& known : kErrors)
    if (known.error == error) return known;
  static constexpr ErrorText kUnrecognized = {cudaErrorUnknown, "unrecognized error code",
                                              "unrecognized error code"};
  return kUnrecognized;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  return text_of(error).name;
}

const char* cudaGetErrorString(cudaError_t error) {
  return text_of(error).text;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_present() ? 1 : 0;
  return note(device_present() ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return note(standing_error());
}

cudaError_t cudaSetDevice(int device) {
  return note(device == 0 || !device_present() ? standing_error() : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
  if (!device_present()) return note(cudaErrorNoDevice);
  if (device != 0) return note(cudaErrorInvalidDevice);
  *found = cudaDeviceProp{.totalGlobalMem = device_memory_bytes(),
                          .sharedMemPerBlock = kDefaultSharedBytes,
                          .warpSize = 32,
                          .maxThreadsPerBlock = int(kMostThreads),
                          .major = 9,
                          .minor = 0,
                          .multiProcessorCount = kMultiprocessors,
                          .integrated = 0,
                          .asyncEngineCount = 3,
                          .unifiedAddressing = 1,
                          .memoryBusWidth = 5120,
                          .l2CacheSize = 50 << 20,
                          .sharedMemPerMultiprocessor = kMostSharedBytes + 1024,
                          .pageableMemoryAccess = 0,
                          .canUseHostPointerForRegisteredMem = 1,
                          .sharedMemPerBlockOptin = kMostSharedBytes,
                          .hostRegisterSupported = 1,
                          .memoryPoolsSupported = 1};
  std::snprintf(found->name, sizeof(found->name), "emulated GPU");
  return note(standing_error());
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp found{};
  if (const cudaError_t error = cudaGetDeviceProperties(&found, device)) return error;
  const std::pair<cudaDeviceAttr, int> answers[] = {
      {cudaDevAttrMaxThreadsPerBlock, found.maxThreadsPerBlock},
      {cudaDevAttrMaxSharedMemoryPerBlock, int(found.sharedMemPerBlock)},
      {cudaDevAttrWarpSize, found.warpSize},
      {cudaDevAttrMultiProcessorCount, found.multiProcessorCount},
      {cudaDevAttrIntegrated, found.integrated},
      {cudaDevAttrAsyncEngineCount, found.asyncEngineCount},
      {cudaDevAttrComputeCapabilityMajor, found.major},
      {cudaDevAttrComputeCapabilityMinor, found.minor},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, int(found.sharedMemPerBlockOptin)},
      {cudaDevAttrHostRegisterSupported, found.hostRegisterSupported},
      {cudaDevAttrMemoryPoolsSupported, found.memoryPoolsSupported}};
  for (const auto& [known, answer] : answers) {
    if (known != attribute) continue;
    *value = answer;
    return cudaSuccess;
  }
  return note(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return note(standing_error());
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = device_present() ? CUDART_VERSION : 0;
  return cudaSuccess;
}
