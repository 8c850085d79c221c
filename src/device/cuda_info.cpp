// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_info.h"

#include <algorithm>
#include <charconv>
#include <string_view>

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

bool built_with_cuda() {
  return true;
}

std::string cuda_architectures() {
#ifdef HEADRACE_CUDA_ARCHITECTURES
  return HEADRACE_CUDA_ARCHITECTURES;
#else
  return "80-virtual";  // the emulation of the tests: any GPU
#endif
}

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

std::string gpu_trouble() {
  int count = 0, driver = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess || error == cudaErrorNoDevice) return {};
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return {};  // none is installed
  return fmt::format("the driver, of CUDA {}.{} (this build: {}.{}), answers: {} ({})", driver / 1000,
                     driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
                     cudaGetErrorString(error), cudaGetErrorName(error));
}

std::string cuda_build_info() {
  std::string info = fmt::format("CUDA {}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
#ifdef CUBLAS_VER_MAJOR
  info += fmt::format(", cuBLAS {}.{}.{}", CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH);
#endif
#ifdef NCCL_MAJOR
  info += fmt::format(", NCCL {}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
#endif
  return info + "; kernels for " + cuda_architectures();
}

}  // namespace headrace

#else

namespace headrace {

bool built_with_cuda() {
  return false;
}

std::string cuda_architectures() {
  return {};
}

std::vector<GpuInfo> list_gpus() {
  return {};
}

std::string gpu_trouble() {
  return {};
}

std::string cuda_build_info() {
  return "none";
}

}  // namespace headrace

#endif

namespace headrace {
namespace {

/// One entry of the list, such as "90", "90-real", "90-virtual" or "90a-real".
bool entry_runs_on(std::string_view entry, int capability) {
  int built_for = 0;
  const char* const end = entry.data() + entry.size();
  const char* const rest = std::from_chars(entry.data(), end, built_for).ptr;
  const std::string_view kind(rest, size_t(end - rest));
  if (kind.starts_with('a')) return capability == built_for;
  const bool machine_code = capability / 10 == built_for / 10 && capability >= built_for;
  const bool ptx = capability >= built_for;
  return (kind != "-virtual" && machine_code) || (kind != "-real" && ptx);
}

}  // namespace

bool code_runs_on(const std::string& architectures, int capability_major, int capability_minor) {
  std::string_view left = architectures;
  while (!left.empty()) {
    const size_t length = std::min(left.find(','), left.size());
    if (entry_runs_on(left.substr(0, length), 10 * capability_major + capability_minor)) return true;
    left.remove_prefix(std::min(length + 1, left.size()));
  }
  return false;
}

std::string why_gpu_is_not_used() {
  if (const std::string trouble = gpu_trouble(); !trouble.empty()) return trouble;
  const std::vector<GpuInfo> gpus = list_gpus();
  if (gpus.empty() || has_usable_gpu()) return {};
  return "this build has kernels for " + cuda_architectures() + " only, none for the " + gpus[0].name +
         " (compute capability " + std::to_string(gpus[0].capability_major) + "." +
         std::to_string(gpus[0].capability_minor) + ")";
}

bool has_usable_gpu() {
  const std::vector<GpuInfo> gpus = list_gpus();
  return built_with_cuda() && !gpus.empty() &&
         code_runs_on(cuda_architectures(), gpus[0].capability_major, gpus[0].capability_minor);
}

}  // namespace headrace
