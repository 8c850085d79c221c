// SPDX-License-Identifier: Apache-2.0
// What forward and backward of the norms share: how many threads serve a row. Constants, so that no sum
// depends on the GPU.
#pragma once

#include "kernels/cuda/elements.h"

namespace headrace::kernels::cuda {

/// Of a row in registers.
constexpr int kMostRowThreads = 512;
/// At most, of a row that is read again.
constexpr int kLongRowThreads = 256;

inline unsigned long_row_threads(int64_t accesses) {
  return unsigned(round_up_to_warps(accesses < kLongRowThreads ? accesses : kLongRowThreads));
}

/// Two sums per warp.
constexpr size_t kRowSharedBytes = 2 * sizeof(float) * (kMostRowThreads / kWarp);

}  // namespace headrace::kernels::cuda
