// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: an arena of host memory of the configured size stands for device memory, three threads
// (hr-compute, hr-h2d, hr-d2h) for its streams. Made by make_device(). Only the compute stream's tasks may
// open OpenMP regions: a second thread would bring up a second team of workers.
#pragma once

#include "device/device.h"
#include "device/host_stream.h"

namespace headrace {

class HostDevice final : public Device {
 public:
  explicit HostDevice(size_t memory_bytes);
  ~HostDevice() override;

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::host; }
  [[nodiscard]] std::string description() const override;
  Stream& compute() override { return compute_; }
  Stream& h2d() override { return h2d_; }
  Stream& d2h() override { return d2h_; }
  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }
  Arena& memory() override { return arena_; }
  void pin(std::span<std::byte>) override {}
  [[nodiscard]] LinkStats link_stats(Link link) const override;
  [[nodiscard]] uint64_t compute_ns() const override { return compute_.task_ns(); }

 private:
  HostMemory memory_;
  Arena arena_;
  HostStream compute_{"hr-compute"}, h2d_{"hr-h2d"}, d2h_{"hr-d2h"};
};

}  // namespace headrace
