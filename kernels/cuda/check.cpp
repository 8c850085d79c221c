// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/check.h"

#include <cstring>

#include "headrace/error.h"

namespace headrace::cuda {
namespace {

const char* remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "lower device.memory, or stop other users of the GPU";
    case cudaErrorInsufficientDriver:
    case cudaErrorUnsupportedPtxVersion:
      return "the driver is older than the CUDA runtime of this build: update the driver";
    case cudaErrorNoDevice:
      return "no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES, or set device.kind = \"host\"";
    case cudaErrorNoKernelImageForDevice:
      return "this build has no code for the GPU: build with CMAKE_CUDA_ARCHITECTURES set to it";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
      return "a kernel failed; CUDA_LAUNCH_BLOCKING=1 makes the message name it";
    default:
      return "headrace doctor shows what this machine's driver and GPUs can do";
  }
}

}  // namespace

void check(cudaError_t error, const std::string& what, Where where) {
  if (error == cudaSuccess) return;
  const char* file = std::strrchr(where.file_name(), '/');
  throw DeviceError(what + " (" + (file ? file + 1 : where.file_name()) + ":" + std::to_string(where.line()) +
                    "): " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + "); " +
                    remedy(error));
}

}  // namespace headrace::cuda
