// SPDX-License-Identifier: Apache-2.0
// A unit's elements as runs with and without weight decay, so that the optimizer sees few long spans.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/engine.h"

namespace headrace {

struct DecayRange {
  int64_t begin, end;
  bool decay;
};

/// Ascending, covering [0, elems) without holes; gaps and padding (always zero) join the run before them.
inline std::vector<DecayRange> decay_ranges(const UnitLayout& layout, int64_t elems) {
  std::vector<DecayRange> ranges;
  for (const SegmentLayout& segment : layout.segments) {
    if (segment.elems == 0) continue;
    if (!ranges.empty() && ranges.back().decay == segment.weight_decay) continue;
    if (!ranges.empty()) ranges.back().end = segment.offset;
    ranges.push_back({segment.offset, elems, segment.weight_decay});
  }
  if (ranges.empty()) ranges.push_back({0, elems, false});
  ranges.front().begin = 0;
  return ranges;
}

}  // namespace headrace
