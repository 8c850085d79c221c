// SPDX-License-Identifier: Apache-2.0
#include "zero/partition.h"

#include <algorithm>

#include "headrace/error.h"

namespace headrace {

int64_t padded_elems(int64_t elems, int world_size) {
  HEADRACE_CHECK(elems >= 0 && world_size > 0, "a unit has no negative size and a group at least one rank");
  const int64_t multiple = world_size * kShardMultiple;
  return (elems + multiple - 1) / multiple * multiple;
}

Shard shard_of(int64_t elems, int rank, int world_size) {
  HEADRACE_CHECK(rank >= 0 && rank < world_size, "a rank lies in its group");
  const int64_t shard_elems = padded_elems(elems, world_size) / world_size;
  const int64_t begin = rank * shard_elems;
  return {.begin = begin, .elems = shard_elems, .valid = std::clamp<int64_t>(elems - begin, 0, shard_elems)};
}

}  // namespace headrace
