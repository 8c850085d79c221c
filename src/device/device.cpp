// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include "device/cuda_info.h"
#include "device/host_device.h"
#include "headrace/error.h"
#ifdef HEADRACE_HAVE_CUDA
#include "device/cuda_device.h"
#endif

namespace headrace {
namespace {

constexpr const char* kElsewhere =
    "set device.kind = \"host\" or \"auto\" to compute on the CPU, or build with a CUDA toolkit and "
    "-DHEADRACE_CUDA=ON";

std::unique_ptr<Device> make_cuda_device([[maybe_unused]] size_t memory_bytes) {
#ifdef HEADRACE_HAVE_CUDA
  const std::vector<GpuInfo> gpus = list_gpus();
  if (const std::string trouble = gpu_trouble(); gpus.empty() && !trouble.empty())
    throw DeviceError("device.kind is \"cuda\" but no GPU can be used: " + trouble +
                      "; update or repair the driver, or set device.kind = \"host\" to compute on the CPU");
  if (gpus.empty())
    throw DeviceError(
        "device.kind is \"cuda\" but no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES, or set "
        "device.kind = \"host\" to compute on the CPU");
  if (const std::string why = why_gpu_is_not_used(); !why.empty())
    throw DeviceError("device.kind is \"cuda\" but " + why +
                      ": build with CMAKE_CUDA_ARCHITECTURES set to it");
  return std::make_unique<CudaDevice>(memory_bytes);
#else
  return nullptr;  // resolve_device() has refused
#endif
}

}  // namespace

DeviceKind resolve_device(DeviceOptions::Kind kind) {
  if (kind == DeviceOptions::Kind::automatic) return has_usable_gpu() ? DeviceKind::cuda : DeviceKind::host;
  if (kind == DeviceOptions::Kind::host) return DeviceKind::host;
  if (!built_with_cuda())
    throw DeviceError(
        std::string("device.kind is \"cuda\" but this build of headrace has no CUDA kernels: ") + kElsewhere);
  return DeviceKind::cuda;
}

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  if (resolve_device(options.kind) == DeviceKind::cuda) return make_cuda_device(options.memory_bytes);
  return std::make_unique<HostDevice>(options.memory_bytes);
}

}  // namespace headrace
