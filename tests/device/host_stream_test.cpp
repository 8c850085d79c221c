// SPDX-License-Identifier: Apache-2.0
#include "device/host_stream.h"

#include "stream_conformance.h"
#include "stream_error_conformance.h"

namespace headrace {
namespace {

struct HostKind {
  using Stream = HostStream;
  using Event = HostEvent;
  static constexpr bool kTasksRunSideBySide = true;
  static bool available() { return true; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Host, StreamConformance, HostKind);
INSTANTIATE_TYPED_TEST_SUITE_P(Host, StreamErrorConformance, HostKind);

TEST(HostStreamDeathTest, ATaskThatWaitsForItsOwnStreamAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        HostStream stream("test");
        stream.enqueue([&stream] { stream.synchronize(); });
        stream.synchronize();
      },
      "waits for its own stream");
}

}  // namespace
}  // namespace headrace
