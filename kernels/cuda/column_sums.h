// SPDX-License-Identifier: Apache-2.0
// Sums over rows, in two steps: a kernel leaves one share per group of rows, then the shares are added here
// in an order that depends on their number alone. Used by the norms' backward and by add_column_sums().
#pragma once

#include "kernels/cuda/launch.h"

namespace headrace::kernels::cuda {

/// shares[groups][parts][cols] -> sums[part][cols] +=.
struct ColumnShares {
  int64_t groups, cols;
  const float* shares;
  int parts = 1;  ///< 1 or 2
  float* sums[2] = {nullptr, nullptr};
};
void add_shares(const LaunchOn&, const ColumnShares&);

}  // namespace headrace::kernels::cuda
