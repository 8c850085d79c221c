// SPDX-License-Identifier: Apache-2.0
// A named span of the calling thread's time in a profile (NVTX), with the words of ARCHITECTURE.md: gather,
// release, reduce_scatter, swap_in, swap_out, copy_h2d, copy_d2h, step. Costs next to nothing when no
// profiler looks on, and nothing at all in a build without CUDA.
#pragma once

namespace headrace {

class [[nodiscard]] Range {
 public:
  explicit Range(const char* name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace headrace
