// SPDX-License-Identifier: Apache-2.0
// The device that a test of the whole pipeline runs on: the host, unless its executable is compiled with
// HEADRACE_TEST_ON_CUDA. The same sources are the tests of both.
#pragma once

#include "headrace/engine.h"
#include "headrace/stream.h"

namespace headrace::test {

#ifdef HEADRACE_TEST_ON_CUDA
constexpr DeviceChoice kTestDevice = DeviceChoice::cuda;
constexpr DeviceKind kTestDeviceKind = DeviceKind::cuda;
#else
constexpr DeviceChoice kTestDevice = DeviceChoice::host;
constexpr DeviceKind kTestDeviceKind = DeviceKind::host;
#endif

}  // namespace headrace::test
