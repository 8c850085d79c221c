// SPDX-License-Identifier: Apache-2.0
// Speeds out of counters. GB are 10^9 bytes, as drives and links are sold.
#pragma once

#include "headrace/stats.h"

namespace headrace::cli {

/// Of a link while something was in flight on it; 0 when nothing moved. Bytes per nanosecond are GB per
/// second.
inline double gb_per_s(const LinkStats& link) {
  return link.busy_ns == 0 ? 0.0 : double(link.bytes) / double(link.busy_ns);
}

inline uint64_t waited_ns(const Stats& stats) {
  uint64_t sum = 0;
  for (const uint64_t ns : stats.wait_ns) sum += ns;
  return sum;
}

}  // namespace headrace::cli
