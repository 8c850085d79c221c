// SPDX-License-Identifier: Apache-2.0
// Which GPUs this machine has and what this build was made for, for `doctor`, `--version` and the choice of a
// device. Plain C++ over the CUDA runtime; in a build without the toolkit there is nothing to see.
// Allocates nothing on a GPU and makes no context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

struct GpuInfo {
  std::string name;
  uint64_t memory_bytes = 0;
  int capability_major = 0;  ///< compute capability, e.g. 9.0 for an H100
  int capability_minor = 0;
};

/// Empty when there is no driver or no GPU: that is an answer, not an error.
std::vector<GpuInfo> list_gpus();

/// Why list_gpus() is empty although a driver is installed, or empty: the driver is older than the build's
/// CUDA, or out of order.
std::string gpu_trouble();

/// What a build's code runs on: whether the architectures ("80-real,90", as in CMAKE_CUDA_ARCHITECTURES)
/// serve a GPU of this compute capability. Machine code serves its major version from its minor one up, PTX
/// everything newer, an "a" architecture itself only.
bool code_runs_on(const std::string& architectures, int capability_major, int capability_minor);

/// The machine's first GPU when this build has kernels for it: where the cuda device would compute.
bool has_usable_gpu();
/// Why a GPU that is there would not compute, for those who left the choice to us: no kernels for it in this
/// build, or a driver out of order. Empty when there is none, or when it would.
std::string why_gpu_is_not_used();
/// Whether this build has kernels for GPUs at all.
bool built_with_cuda();
/// The architectures that this build's kernels are compiled for; empty without CUDA.
std::string cuda_architectures();

/// "CUDA 13.0, cuBLAS 13.0.2, NCCL 2.28.3; kernels for 90", with what was found at build time, or "none".
std::string cuda_build_info();

}  // namespace headrace
