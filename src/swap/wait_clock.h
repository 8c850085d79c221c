// SPDX-License-Identifier: Apache-2.0
// What the accelerator waited for. The thread that drives the step books each of its waits here; of the time
// it takes, the part in which the compute stream was busy anyway costs nothing and is not counted. One
// thread.
#pragma once

#include <array>
#include <chrono>

#include "device/device.h"
#include "headrace/stats.h"

namespace headrace {

class WaitClock {
 public:
  /// Without a device, all waiting counts.
  explicit WaitClock(const Device* device = nullptr) : device_(device) {}

  /// Runs `wait` and books the accelerator's idle time meanwhile on `cause`.
  template <class F>
  decltype(auto) book(WaitCause cause, F&& wait) {
    struct Guard {
      WaitClock* clock;
      WaitCause cause;
      uint64_t start = clock->idle_ns();
      ~Guard() {
        const uint64_t end = clock->idle_ns();
        if (end > start) clock->ns_[size_t(cause)] += end - start;
      }
    } guard{this, cause};
    return wait();
  }
  [[nodiscard]] const std::array<uint64_t, kWaitCauseCount>& ns() const { return ns_; }

 private:
  /// A clock that stands still while the compute stream computes.
  [[nodiscard]] uint64_t idle_ns() const {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return uint64_t(std::chrono::nanoseconds(now).count()) - (device_ ? device_->compute_ns() : 0);
  }

  const Device* device_;
  std::array<uint64_t, kWaitCauseCount> ns_{};
};

}  // namespace headrace
