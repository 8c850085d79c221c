// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_info.h"

#ifdef HEADRACE_HAVE_CUDA

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#if __has_include(<cublas_api.h>)
#include <cublas_api.h>
#endif
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace headrace {

std::vector<GpuInfo> list_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<GpuInfo> gpus;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp found{};
    if (cudaGetDeviceProperties(&found, device) != cudaSuccess) continue;
    gpus.push_back({.name = found.name,
                    .memory_bytes = found.totalGlobalMem,
                    .capability_major = found.major,
                    .capability_minor = found.minor});
  }
  return gpus;
}

std::string cuda_build_info() {
  std::string info = fmt::format("CUDA {}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
#ifdef CUBLAS_VER_MAJOR
  info += fmt::format(", cuBLAS {}.{}.{}", CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH);
#endif
#ifdef NCCL_MAJOR
  info += fmt::format(", NCCL {}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
#endif
  return info;
}

}  // namespace headrace

#else

namespace headrace {

std::vector<GpuInfo> list_gpus() {
  return {};
}

std::string cuda_build_info() {
  return "none";
}

}  // namespace headrace

#endif
