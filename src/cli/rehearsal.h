// SPDX-License-Identifier: Apache-2.0
// A run's threads and memory, taken for a moment before anything of the run exists. OpenMP's runtime ends the
// process when it cannot start a thread, and does so in the middle of a run, with swapped state on the drives
// and without the reason; here the same shortage is an error that names the limits. Used by train and
// generate. What other processes take afterwards it cannot know.
#pragma once

#include <cstdint>

#include "train/config.h"

namespace headrace::cli {

struct RunNeeds {
  unsigned compute_threads = 0;  ///< OpenMP's team and the optimizer's, without the threads that lead them
  unsigned other_threads = 0;    ///< streams and I/O
  uint64_t memory_bytes = 0;     ///< address space of what is planned
};

/// `plan` holds the memory and tells which drives are used.
RunNeeds needs_of(const Plan& plan, const Config& config);

/// Starts all threads at once beside the memory, which is only mapped, and gives everything back. Throws
/// Error naming the limits and the keys.
void rehearse(const RunNeeds& needs);

}  // namespace headrace::cli
