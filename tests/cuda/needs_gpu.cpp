// SPDX-License-Identifier: Apache-2.0
// Linked into the test programs of this folder: where no GPU is visible, every test is a visible skip, or,
// with HEADRACE_REQUIRE_GPU=1, a failure. (Without HEADRACE_TEST_ON_CUDA the same tests run on the host
// device.)
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "device/cuda_info.h"
#include "tests/test_device.h"

namespace headrace::test {
namespace {

class NeedsGpu final : public testing::EmptyTestEventListener {
 public:
  /// GoogleTest does not run the body of a test that failed or was skipped before it.
  void OnTestStart(const testing::TestInfo&) override {
    if (kTestDevice == DeviceChoice::host || !list_gpus().empty()) return;
    const char* const required = std::getenv("HEADRACE_REQUIRE_GPU");
    if (required && std::string_view(required) == "1")
      FAIL() << "HEADRACE_REQUIRE_GPU=1, but there is no GPU";
    GTEST_SKIP() << "no GPU is visible";
  }
};

// GoogleTest owns its listeners.
[[maybe_unused]] const bool kAppended = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new NeedsGpu);
  return true;
}();

}  // namespace
}  // namespace headrace::test
