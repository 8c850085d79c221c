// SPDX-License-Identifier: Apache-2.0
// The state of the emulated GPU that the stand-ins' functions share: whether it is there and works, and its
// memory. All functions may be called from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace headrace::emulation {

[[nodiscard]] bool device_present();
[[nodiscard]] size_t device_memory_bytes();

/// The first fault stays. Also written to stderr.
void set_fault(const std::string& message);
[[nodiscard]] bool has_fault();

/// cudaErrorNoDevice, cudaErrorLaunchFailure after a fault, or cudaSuccess.
[[nodiscard]] cudaError_t standing_error();
/// Keeps an error for cudaGetLastError and returns it.
cudaError_t note(cudaError_t error);

/// Whether all bytes are in one device allocation.
[[nodiscard]] bool is_device_memory(const void* pointer, size_t bytes);
/// Whether any byte is in device memory.
[[nodiscard]] bool touches_device_memory(const void* pointer, size_t bytes);
/// Aligned to 256 bytes, holding NaN patterns; nullptr when the GPU's or the pool's memory does not suffice.
void* allocate(size_t bytes, cudaMemPool_t pool);
/// False for what is not an allocation's begin.
bool release(void* pointer);

void count_kernel();

}  // namespace headrace::emulation
