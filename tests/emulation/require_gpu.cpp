// SPDX-License-Identifier: Apache-2.0
// Linked into the tests of the emulated GPU: there is always one, so a test that skips itself for want of a
// GPU fails instead.
#include <cstdlib>

namespace {
[[maybe_unused]] const int required = setenv("HEADRACE_REQUIRE_GPU", "1", 1);
}
