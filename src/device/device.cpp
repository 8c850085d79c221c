// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include "device/host_device.h"
#include "headrace/error.h"

namespace headrace {

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  if (options.kind == DeviceOptions::Kind::cuda)
    throw DeviceError(
        "device.kind is \"cuda\" but this build of headrace has no CUDA kernels; set device.kind = \"host\" "
        "or "
        "\"auto\" to compute on the CPU");
  return std::make_unique<HostDevice>(options.memory_bytes);
}

}  // namespace headrace
