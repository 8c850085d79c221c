// SPDX-License-Identifier: Apache-2.0
// Which GPUs this machine has and what this build was made against, for `doctor`, `--version` and the choice
// of a device. Plain C++ over the CUDA runtime; in a build without the toolkit there is nothing to see.
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

/// "CUDA 13.0, cuBLAS 13.0.2, NCCL 2.28.3", with what was found at build time, or "none".
std::string cuda_build_info();

}  // namespace headrace
