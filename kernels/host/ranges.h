// SPDX-License-Identifier: Apache-2.0
// Pointers into arrays whose element format is known at run time, and the cutting of work
// into ranges that the OpenMP team shares.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "headrace/dtype.h"

namespace headrace::kernels::host {

inline const void* element(const void* base, int64_t index, DType dtype) {
  return base ? static_cast<const std::byte*>(base) + index * int64_t(dtype_bytes(dtype)) : nullptr;
}
inline void* element(void* base, int64_t index, DType dtype) {
  return base ? static_cast<std::byte*>(base) + index * int64_t(dtype_bytes(dtype)) : nullptr;
}

/// Elements of one turn of the element by element loops; below it a team costs more than it saves.
constexpr int64_t kTurnElems = 16 * 1024;

/// Calls body(first, count) for consecutive ranges of `per_turn` out of `total`, shared among the team.
template <class F>
void parallel_ranges(int64_t total, int64_t per_turn, F body) {
  const int64_t turns = (total + per_turn - 1) / per_turn;
#pragma omp parallel for schedule(static) if (turns > 1)
  for (int64_t t = 0; t < turns; ++t) body(t * per_turn, std::min(per_turn, total - t * per_turn));
}

/// The same for rows, with about kTurnElems elements in a turn.
template <class F>
void parallel_rows(int64_t rows, int64_t cols, F body) {
  parallel_ranges(rows, std::max<int64_t>(1, kTurnElems / std::max<int64_t>(1, cols)), body);
}

/// Columns of one turn where rows must be summed in ascending order.
constexpr int64_t kTurnColumns = 128;

}  // namespace headrace::kernels::host
