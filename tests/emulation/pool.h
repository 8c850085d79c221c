// SPDX-License-Identifier: Apache-2.0
// A pool of the emulated GPU's memory: a limit and a count; allocations are the device's own. A pool that
// still has allocations when it is destroyed stays until the process ends.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUmemPoolHandle_st {
  size_t most_bytes = 0;  ///< 0: no limit of its own
  size_t used_bytes = 0;  ///< guarded by the device's mutex
  uint64_t release_threshold = 0;
};
