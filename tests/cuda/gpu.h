// SPDX-License-Identifier: Apache-2.0
// Which device the tests of this folder run on, and what happens when it is missing: a visible skip, or, with
// HEADRACE_REQUIRE_GPU=1, a failure. HEADRACE_GPU_TEST_DEVICE=host runs them on a second host device instead,
// which tries the cases out where there is no GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "device/cuda_info.h"
#include "device/device.h"

namespace headrace::test {

inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

inline bool tried_out_on_the_host() {
  return environment("HEADRACE_GPU_TEST_DEVICE") == "host";
}

inline DeviceOptions::Kind kind_under_test() {
  return tried_out_on_the_host() ? DeviceOptions::Kind::host : DeviceOptions::Kind::cuda;
}

/// The base of every test here that needs the device.
template <class Base = testing::Test>
class OnTheGpu : public Base {
 protected:
  void SetUp() override {
    if (tried_out_on_the_host() || !list_gpus().empty()) return;
    if (environment("HEADRACE_REQUIRE_GPU") == "1") FAIL() << "HEADRACE_REQUIRE_GPU=1 and no GPU is visible";
    GTEST_SKIP() << "no GPU is visible";
  }
};

}  // namespace headrace::test
