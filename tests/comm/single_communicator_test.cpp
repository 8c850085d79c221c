// SPDX-License-Identifier: Apache-2.0
#include "communicator_conformance.h"
#include "headrace/error.h"

namespace headrace {
namespace {

struct SingleGroup {
  static constexpr int kWorldSize = 1;

  template <class Body>
  void run(Body body) {
    const auto comm = make_single_communicator();
    const auto device = make_device({.kind = DeviceOptions::Kind::host, .memory_bytes = size_t(8) << 20});
    body(*comm, *device);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Single, CommunicatorConformance, SingleGroup);

TEST(SingleCommunicator, AbortThrowsItsReason) {
  const auto comm = make_single_communicator();
  try {
    comm->abort("the loss is not finite");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the loss is not finite");
  }
}

TEST(SingleCommunicator, InPlaceGatherEnqueuesNothing) {
  const auto comm = make_single_communicator();
  const auto device = make_device({.kind = DeviceOptions::Kind::host});
  float value = 3.0f;
  comm->all_gather(device->h2d(), &value, sizeof(value), &value);
  comm->reduce_scatter(device->h2d(), &value, 1, &value);
  device->h2d().synchronize();
  EXPECT_EQ(device->link_stats(Link::h2d).bytes, 0u);
  EXPECT_EQ(value, 3.0f);
}

}  // namespace
}  // namespace headrace
