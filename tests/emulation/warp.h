// SPDX-License-Identifier: Apache-2.0
// Where threads of a kernel meet: the block at a barrier, the 32 lanes of a warp to exchange words. Called on
// a kernel's threads only, by device_words.h. A meeting that cannot happen (lanes missing, threads at
// different call sites) is a fault of the kernel: the launch ends there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace headrace::emulation {

using Site = std::source_location;

constexpr size_t kWordsPerLane = 8;  ///< most that a lane brings to a meeting

/// What the 32 lanes brought, lane by lane. Valid until the warp's next meeting but one.
class WarpWords {
 public:
  explicit WarpWords(const uint64_t* words) : words_(words) {}
  uint64_t operator[](unsigned lane) const { return words_[lane * kWordsPerLane]; }

 private:
  const uint64_t* words_;
};

void block_barrier(const char* what, Site at);
WarpWords exchange(const char* what, unsigned mask, uint64_t word, Site at);
/// One bit a lane.
unsigned ballot(const char* what, unsigned mask, bool predicate, Site at);
/// Of the running thread in its warp.
int lane_index();

}  // namespace headrace::emulation
