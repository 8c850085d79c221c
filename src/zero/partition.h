// SPDX-License-Identifier: Apache-2.0
// The rule that cuts a unit over ranks (ZeRO, Rajbhandari et al. 2020, stage 3): the unit's elements, padded
// to a multiple of world_size * kShardMultiple, in equal contiguous shards. Padding is zero and stays zero:
// zero weight, zero gradient, zero moments, so it never enters a norm. Pure arithmetic; no memory, no I/O.
#pragma once

#include <cstdint>

namespace headrace {

/// 2-byte planes of a shard are whole 4 KiB pages.
constexpr int64_t kShardMultiple = 2048;

struct Shard {
  int64_t begin;  ///< first element of the padded unit
  int64_t elems;  ///< equal on every rank, a multiple of kShardMultiple; 0 for an empty unit
  int64_t valid;  ///< of these, elements that exist (the rest is padding at the end)
};

/// Padded length of a unit of `elems` elements over `world_size` ranks.
int64_t padded_elems(int64_t elems, int world_size);
Shard shard_of(int64_t elems, int rank, int world_size);

}  // namespace headrace
