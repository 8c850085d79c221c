// SPDX-License-Identifier: Apache-2.0
// Replaces operator new of the whole test program by one that counts.
#pragma once

#include <cstddef>

namespace headrace {

/// Calls of operator new by any thread so far.
size_t allocation_count();

}  // namespace headrace
