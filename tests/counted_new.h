// SPDX-License-Identifier: Apache-2.0
// Replaces operator new of the whole test program by one that counts.
#pragma once

#include <cstddef>

namespace headrace {

/// Calls of operator new by any thread so far.
size_t allocation_count();
/// The same without the calls made by the compute stream's thread.
size_t allocation_count_off_compute();
/// Bytes of the largest call made by the compute stream's thread since reset_largest_on_compute().
size_t largest_allocation_on_compute();
void reset_largest_on_compute();

}  // namespace headrace
