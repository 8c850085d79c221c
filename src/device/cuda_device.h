// SPDX-License-Identifier: Apache-2.0
// A GPU as a device: one piece of its memory, taken from a pool of its own at construction, three streams
// that run beside one another, and page-locked host memory. Made by make_device(). Nothing is allocated after
// construction but what pin() and make_event() are asked for.
#pragma once

#include <string>
#include <vector>

#include "device/cuda_stream.h"
#include "device/device.h"

namespace headrace {

/// One piece of device memory that begins on a page, zero at the start as the host device's is. Freed when it
/// goes.
class CudaMemory {
 public:
  /// Throws OutOfMemory{"device"} when the GPU has not that much free.
  explicit CudaMemory(size_t bytes);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  CudaStreamHandle stream_;
  CudaPoolHandle pool_;
  void* allocation_ = nullptr;
  std::span<std::byte> bytes_;
};

class CudaDevice final : public Device {
 public:
  /// On the first GPU that CUDA_VISIBLE_DEVICES shows.
  explicit CudaDevice(size_t memory_bytes);
  ~CudaDevice() override;

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cuda; }
  [[nodiscard]] std::string description() const override;
  Stream& compute() override { return compute_; }
  Stream& h2d() override { return h2d_; }
  Stream& d2h() override { return d2h_; }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(); }
  Arena& memory() override { return arena_; }
  void pin(std::span<std::byte> host_memory) override;
  [[nodiscard]] LinkStats link_stats(Link link) const override;
  /// The time of the compute stream between its waits for events, as the GPU's clock saw it.
  [[nodiscard]] uint64_t compute_ns() const override { return compute_.busy_ns(); }

 private:
  CudaMemory memory_;
  Arena arena_;
  CudaStream compute_{"copy", CudaStream::Counts::work};
  CudaStream h2d_{"copy_h2d", CudaStream::Counts::copies};
  CudaStream d2h_{"copy_d2h", CudaStream::Counts::copies};
  std::vector<void*> pinned_;
};

}  // namespace headrace
