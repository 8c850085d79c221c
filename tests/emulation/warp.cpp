// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/warp.h"

#include "tests/emulation/executor.h"

namespace headrace::emulation {

int lane_index() {
  return int(Executor::running().lane());
}

void block_barrier(const char* what, Site at) {
  Executor::running().block_barrier(what, at);
}

WarpWords exchange(const char* what, unsigned mask, uint64_t word, Site at) {
  const WarpSlots& slots =
      Executor::running().meet(what, mask, at, std::array<uint64_t, 1>{word}, [](WarpSlots&) {});
  return WarpWords(slots[0].words.data());
}

unsigned ballot(const char* what, unsigned mask, bool predicate, Site at) {
  const WarpSlots& slots =
      Executor::running().meet(what, mask, at, std::array<uint64_t, 1>{predicate}, [](WarpSlots& all) {
        uint64_t bits = 0;
        for (unsigned lane = 0; lane < kLanes; ++lane) bits |= all[lane].words[0] << lane;
        for (LaneWords& lane : all) lane.words[0] = bits;
      });
  return unsigned(slots[0].words[0]);
}

}  // namespace headrace::emulation
