// SPDX-License-Identifier: Apache-2.0
// What a test may ask of the emulated GPU beyond the CUDA runtime. Environment: HEADRACE_EMULATED_GPUS=0
// leaves the machine without a GPU; HEADRACE_EMULATED_MEMORY_MIB is the GPU's memory, 8192 when not given.
#pragma once

#include <cstddef>
#include <string>

namespace headrace::emulation {

/// The fault that made the device fail, in one line; empty while it works. Like the real one the device stays
/// failed: every later call returns cudaErrorLaunchFailure, enqueued work is skipped.
std::string last_fault();

/// Forgets the fault, as a new process would. No other thread may be in a CUDA call.
void reset_device();

/// Replaces the memory size from here on; what is allocated stays.
void set_device_memory(size_t bytes);

/// Device memory that has not been freed.
size_t device_bytes_in_use();

/// Kernels that were started since the process began.
size_t kernels_launched();

}  // namespace headrace::emulation
