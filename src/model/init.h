// SPDX-License-Identifier: Apache-2.0
// Initial weights from a counter, not from a generator with a state: element i of a segment is a function of
// (seed, unit name, segment name, i), so that any rank can make any part in any order and all agree.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace headrace {

/// How a segment starts.
struct SegmentInit {
  enum class Kind : uint8_t { constant, normal } kind;
  double value;  ///< the constant, or the standard deviation around 0
};

/// Fills elements [first, first + out.size()) of the segment.
void initialize_segment(SegmentInit init, uint64_t seed, std::string_view unit, std::string_view segment,
                        int64_t first, std::span<float> out);

}  // namespace headrace
