// SPDX-License-Identifier: Apache-2.0
// What forward and backward of the norms share: how many threads serve a row. Constants, so that no sum
// depends on the GPU.
#pragma once

#include "kernels/cuda/elements.h"

namespace headrace::kernels::cuda {

/// Of a row in registers.
constexpr int kMostRowThreads = 512;
/// Of a row that is read again.
constexpr int kLongRowThreads = 256;

/// Two sums per warp.
constexpr size_t kRowSharedBytes = 2 * sizeof(float) * (kMostRowThreads / kWarp);

}  // namespace headrace::kernels::cuda
