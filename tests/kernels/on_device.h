// SPDX-License-Identifier: Apache-2.0
// Tensors on their way to the memory of a device and back, for tests of kernels on any device.
#pragma once

#include <memory>

#include "device/device.h"
#include "tests/kernels/support.h"

namespace headrace::kernels {

/// A region of device memory whose pieces are forgotten by reset().
class DeviceRegion {
 public:
  explicit DeviceRegion(Device& device)
      : device_(device),
        all_(device.memory().memory().subspan(device.memory().used())),
        arena_("device", "a bigger region", all_) {}

  void reset() { arena_ = Arena("device", "a bigger region", all_); }
  /// `shift` bytes beyond an aligned address.
  std::byte* take(size_t bytes, size_t shift = 0) { return arena_.take(bytes + shift, 256, "test") + shift; }
  std::byte* put(Tensor& tensor, size_t shift = 0) {
    std::byte* const at = take(tensor.bytes().size(), shift);
    device_.compute().copy(at, tensor.data(), tensor.bytes().size());
    device_.compute().synchronize();
    return at;
  }
  void get(const void* from, Tensor& tensor) {
    device_.compute().copy(tensor.data(), from, tensor.bytes().size());
    device_.compute().synchronize();
  }
  Scratch scratch(size_t bytes) { return {take(bytes), bytes}; }

 private:
  Device& device_;
  std::span<std::byte> all_;
  Arena arena_;
};

}  // namespace headrace::kernels
