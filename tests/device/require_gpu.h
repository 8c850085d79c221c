// SPDX-License-Identifier: Apache-2.0
// Tests that need a GPU: without one they are skipped, which says so; with HEADRACE_REQUIRE_GPU=1 in the
// environment they fail.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

namespace headrace {

inline bool gpu_is_required() {
  const char* const value = std::getenv("HEADRACE_REQUIRE_GPU");
  return value && std::string_view(value) == "1";
}

}  // namespace headrace

/// In SetUp() or a test's body.
#define HEADRACE_SKIP_UNLESS(available)                                                           \
  do {                                                                                            \
    if (!(available)) {                                                                           \
      if (::headrace::gpu_is_required()) FAIL() << "HEADRACE_REQUIRE_GPU=1, but there is no GPU"; \
      GTEST_SKIP() << "no GPU that this build has kernels for";                                   \
    }                                                                                             \
  } while (false)
