// SPDX-License-Identifier: Apache-2.0
// The emulated NCCL: one rank, copies in stream order.
#include <nccl.h>

#include "tests/emulation/self_test.h"

namespace headrace::emulation {
namespace {

class Nccl : public testing::Test {
 protected:
  Nccl() {
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  }
  ~Nccl() override { EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess); }
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  const DeviceArray<float> from{std::vector<float>{1, 2, 3}}, to{std::vector<float>{0, 0, 0}};
};

TEST_F(Nccl, CollectivesOfOneRankKeepItsValues) {
  ASSERT_EQ(ncclAllGather(from, to, 1, ncclFloat32, comm, nullptr), ncclSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(to.values(), (std::vector<float>{1, 0, 0}));
  ASSERT_EQ(ncclReduceScatter(from, to, 2, ncclFloat32, ncclSum, comm, nullptr), ncclSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(to.values(), (std::vector<float>{1, 2, 0}));
  ASSERT_EQ(ncclAllReduce(from, to, 3, ncclFloat32, ncclSum, comm, nullptr), ncclSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(to.values(), from.values());
}

TEST_F(Nccl, AGroupBeginsAtItsEnd) {
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclAllGather(from, to, 3, ncclFloat32, comm, nullptr), ncclSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(to[2], 0.0f);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(to[2], 3.0f);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

TEST_F(Nccl, RefusesMoreRanksAndHostMemory) {
  ncclComm_t two = nullptr;
  EXPECT_EQ(ncclCommInitRank(&two, 2, id, 0), ncclInvalidArgument);
  std::vector<float> host(3);
  EXPECT_EQ(ncclAllGather(host.data(), to, 3, ncclFloat32, comm, nullptr), ncclInvalidArgument);
}

}  // namespace
}  // namespace headrace::emulation
