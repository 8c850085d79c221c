// SPDX-License-Identifier: Apache-2.0
// What moved and what was waited for. Counters only grow; a step's share is the difference of two snapshots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace {

enum class Tier : uint8_t { device, host, nvme };
constexpr const char* tier_name(Tier tier) {
  return tier == Tier::device ? "device" : tier == Tier::host ? "host" : "nvme";
}

/// The four links a byte can cross inside one rank.
enum class Link : uint8_t { nvme_read, nvme_write, h2d, d2h };
constexpr size_t kLinkCount = 4;
constexpr std::array<const char*, kLinkCount> kLinkNames = {"nvme_read", "nvme_write", "h2d", "d2h"};

/// Why the accelerator stood still: time in which the compute stream had nothing to run while the thread that
/// drives the step waited for this.
enum class WaitCause : uint8_t { nvme, copy, optimizer, comm };
constexpr size_t kWaitCauseCount = 4;
constexpr std::array<const char*, kWaitCauseCount> kWaitCauseNames = {"nvme", "copy", "optimizer", "comm"};

struct LinkStats {
  uint64_t bytes = 0;
  uint64_t busy_ns = 0;  ///< time with at least one transfer in flight on this link
};

struct Stats {
  std::array<LinkStats, kLinkCount> link{};
  std::array<uint64_t, kWaitCauseCount> wait_ns{};
  uint64_t adam_ns = 0;  ///< time inside the optimizer's arithmetic
  // Peaks in bytes since the engine was made.
  uint64_t peak_device_bytes = 0;
  uint64_t peak_pinned_bytes = 0;
  uint64_t peak_nvme_bytes = 0;

  const LinkStats& operator[](Link l) const { return link[size_t(l)]; }
};

}  // namespace headrace
