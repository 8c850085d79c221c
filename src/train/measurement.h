// SPDX-License-Identifier: Apache-2.0
// What the trainer measures of itself, beside the engine's own counters.
#pragma once

#include <cstdint>

#include "headrace/stats.h"

namespace headrace {

/// VmHWM of this process; 0 where the kernel does not tell.
uint64_t peak_rss_bytes();

/// Counters between two readings; peaks are those of `after`.
Stats difference(const Stats& after, const Stats& before);

}  // namespace headrace
