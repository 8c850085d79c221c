// SPDX-License-Identifier: Apache-2.0
// Where a unit's segments lie in its flat buffer. Every module that cuts, moves or reads units uses this one
// answer; a file of a saved run depends on it.
#include <fmt/format.h>

#include <limits>
#include <unordered_set>

#include "headrace/engine.h"
#include "headrace/error.h"

namespace headrace {
namespace {

[[noreturn]] void fail(const UnitSpec& unit, const Segment& segment, const char* reason) {
  throw ConfigError("", fmt::format("unit {}, segment '{}': {}", unit.name, segment.name, reason));
}

/// Number of elements; a shape without dimensions is one number. Leaves room for the rounding up.
int64_t elems_of(const UnitSpec& unit, const Segment& segment) {
  int64_t elems = 1;
  bool overflow = false;
  bool empty = false;
  for (const int64_t extent : segment.shape) {
    if (extent < 0) fail(unit, segment, "a negative extent");
    if (extent == 0) empty = true;
    if (extent > 0) overflow |= __builtin_mul_overflow(elems, extent, &elems);
  }
  if (empty) return 0;
  if (overflow || elems > std::numeric_limits<int64_t>::max() - kSegmentAlignElems)
    fail(unit, segment, "more elements than 64 bits count");
  return elems;
}

constexpr int64_t round_up(int64_t elems) {
  return (elems + kSegmentAlignElems - 1) / kSegmentAlignElems * kSegmentAlignElems;
}

}  // namespace

UnitLayout layout_of(const UnitSpec& spec) {
  UnitLayout layout{.segments = {}, .elems = 0, .param_count = 0};
  std::unordered_set<std::string> names;
  for (const Segment& segment : spec.segments) {
    if (!names.insert(segment.name).second) fail(spec, segment, "the name is taken by an earlier segment");
    const int64_t elems = elems_of(spec, segment);
    layout.segments.push_back({layout.elems, elems, segment.weight_decay});
    if (__builtin_add_overflow(layout.elems, round_up(elems), &layout.elems))
      fail(spec, segment, "the unit has more elements than 64 bits count");
    layout.param_count += elems;  // at most layout.elems, which fits
  }
  return layout;
}

}  // namespace headrace
