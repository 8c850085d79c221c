// SPDX-License-Identifier: Apache-2.0
// Time that the thread driving the engine stands still, by cause. One thread.
#pragma once

#include <array>
#include <chrono>

#include "headrace/stats.h"

namespace headrace {

class WaitClock {
 public:
  /// Runs `wait` and books its time on `cause`.
  template <class F>
  decltype(auto) book(WaitCause cause, F&& wait) {
    struct Guard {
      WaitClock* clock;
      WaitCause cause;
      std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
      ~Guard() {
        clock->ns_[size_t(cause)] += uint64_t(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
                .count());
      }
    } guard{this, cause};
    return wait();
  }
  [[nodiscard]] const std::array<uint64_t, kWaitCauseCount>& ns() const { return ns_; }

 private:
  std::array<uint64_t, kWaitCauseCount> ns_{};
};

}  // namespace headrace
