// SPDX-License-Identifier: Apache-2.0
// A device: its memory, its three streams, and pinned host memory that it can copy to and from. `host` does
// all of this on the CPU: an arena of the configured size stands for device memory, streams are threads,
// copies are copies. Used by swap, zero, optim and engine. Knows nothing of units or training.
//
// A device outlives its events and whatever uses its streams; destroying it finishes the enqueued work.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "headrace/stats.h"
#include "headrace/stream.h"

namespace headrace {

/// A fixed region cut into pieces once, at start-up, in the order of the plan. Never grows, never gives back.
class Arena {
 public:
  Arena(std::string tier, std::string remedy, std::span<std::byte> memory);
  /// `alignment` is a power of two. Throws OutOfMemory{tier, wanted, available} naming `what` and the remedy.
  std::byte* take(size_t bytes, size_t alignment, const std::string& what);
  [[nodiscard]] size_t used() const { return used_; }
  [[nodiscard]] size_t capacity() const { return memory_.size(); }
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }

 private:
  std::string tier_, remedy_;
  std::span<std::byte> memory_;
  size_t used_ = 0;
};

/// Anonymous pages of this process: 2 MiB aligned, huge pages asked for, touched at construction.
class HostMemory {
 public:
  explicit HostMemory(size_t bytes);  ///< throws OutOfMemory{"host"} when the machine refuses
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual DeviceKind kind() const = 0;
  [[nodiscard]] virtual std::string description() const = 0;

  virtual Stream& compute() = 0;
  virtual Stream& h2d() = 0;
  virtual Stream& d2h() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  /// The device's memory of the size given at creation.
  virtual Arena& memory() = 0;
  /// Makes host memory fast to copy from (cudaHostRegister); nothing to do on the host device.
  virtual void pin(std::span<std::byte> host_memory) = 0;
  /// What the copy streams moved so far (Link::h2d and Link::d2h); the other links do not end here: zero.
  /// Called by the thread that enqueues.
  [[nodiscard]] virtual LinkStats link_stats(Link link) const = 0;
  /// Nanoseconds that the compute stream has spent computing so far, the running kernel included. Called by
  /// the thread that enqueues.
  [[nodiscard]] virtual uint64_t compute_ns() const = 0;
};

struct DeviceOptions {
  enum class Kind : unsigned char { automatic, cuda, host } kind = Kind::automatic;
  size_t memory_bytes = 0;  ///< taken at creation
};

/// The kind that make_device() makes of it: `automatic` is cuda where a GPU is visible that this build has
/// kernels for. `cuda` is cuda on a machine without a GPU too, so that a plan can be made there; in a build
/// without kernels it throws DeviceError.
DeviceKind resolve_device(DeviceOptions::Kind kind);

/// Throws DeviceError or OutOfMemory.
std::unique_ptr<Device> make_device(const DeviceOptions& options);

}  // namespace headrace
