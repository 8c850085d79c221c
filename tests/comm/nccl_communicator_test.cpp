// SPDX-License-Identifier: Apache-2.0
// NCCL with one rank: in a normal build on a real GPU, in the emulated build on the emulated one.
#include "comm/nccl_communicator.h"

#include <gmock/gmock.h>

#include <stdexcept>

#include "communicator_conformance.h"
#include "device/cuda_info.h"
#include "headrace/error.h"
#include "tests/device/require_gpu.h"

namespace headrace {
namespace {

std::unique_ptr<Device> make_cuda() {
  return make_device({.kind = DeviceOptions::Kind::cuda, .memory_bytes = size_t(8) << 20});
}

struct NcclGroup {
  static constexpr int kWorldSize = 1;

  template <class Body>
  void run(Body body) {
    HEADRACE_SKIP_UNLESS(has_usable_gpu());
    const auto device = make_cuda();
    const auto comm = make_nccl_communicator(0, 1, make_nccl_id());
    body(*comm, *device);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, CommunicatorConformance, NcclGroup);

TEST(NcclCommunicator, AbortThrowsItsReasonAndEndsTheGroup) {
  HEADRACE_SKIP_UNLESS(has_usable_gpu());
  const auto comm = make_nccl_communicator(0, 1, make_nccl_id());
  try {
    comm->abort("the loss is not finite");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the loss is not finite");
  }
  try {
    comm->barrier();
    FAIL() << "a barrier of a group that is gone";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("aborted"));
  }
}

TEST(NcclCommunicatorDeathTest, AStreamOfTheHostIsAMistake) {
  HEADRACE_SKIP_UNLESS(has_usable_gpu());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto host = make_device({.kind = DeviceOptions::Kind::host, .memory_bytes = 64});
        const auto comm = make_nccl_communicator(0, 1, make_nccl_id());
        comm->all_gather(host->compute(), host->memory().take(4, 4, "a"), 4, host->memory().take(4, 4, "b"));
      },
      "streams of a GPU");
}

}  // namespace
}  // namespace headrace
