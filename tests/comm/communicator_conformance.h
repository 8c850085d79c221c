// SPDX-License-Identifier: Apache-2.0
// What every Communicator must do, whatever carries it. An implementation instantiates the suite with a Group
// type:
//   static constexpr int kWorldSize;
//   template <class Body> void run(Body body);   // body(Communicator&, Device&) on every rank; returns when
//   all have
// Expected values are computed from the ranks' inputs by hand-written sums, in rank order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"

namespace headrace {

template <class Group>
class CommunicatorConformance : public testing::Test {
 protected:
  static constexpr int kWorld = Group::kWorldSize;
  Group group_;

  /// A value that differs for every rank and element, and whose sums are not exact in fp32.
  static float value(int rank, size_t i) { return 0.1f * float(rank + 1) + 1.7f * float(i % 1013); }
  static float sum_over_ranks(size_t i) {
    float sum = value(0, i);
    for (int rank = 1; rank < kWorld; ++rank) sum += value(rank, i);
    return sum;
  }
};

TYPED_TEST_SUITE_P(CommunicatorConformance);

TYPED_TEST_P(CommunicatorConformance, RanksAreNumbered) {
  this->group_.run([](Communicator& comm, Device&) {
    EXPECT_EQ(comm.world_size(), TestFixture::kWorld);
    EXPECT_GE(comm.rank(), 0);
    EXPECT_LT(comm.rank(), comm.world_size());
  });
}

TYPED_TEST_P(CommunicatorConformance, AllGatherPutsShardsInRankOrder) {
  this->group_.run([](Communicator& comm, Device& device) {
    for (const size_t elems : {size_t(0), size_t(1), size_t(2048), size_t(100'003)}) {
      std::vector<float> shard(elems), full(elems * size_t(comm.world_size()) + 1, -1.0f);
      for (size_t i = 0; i < elems; ++i) shard[i] = TestFixture::value(comm.rank(), i);
      comm.all_gather(device.compute(), shard.data(), elems * sizeof(float), full.data());
      device.compute().synchronize();
      for (int rank = 0; rank < comm.world_size(); ++rank)
        for (size_t i = 0; i < elems; ++i)
          ASSERT_EQ(full[size_t(rank) * elems + i], TestFixture::value(rank, i));
      EXPECT_EQ(full.back(), -1.0f);
    }
  });
}

TYPED_TEST_P(CommunicatorConformance, AllGatherTakesAShardThatLiesInTheFullBuffer) {
  this->group_.run([](Communicator& comm, Device& device) {
    constexpr size_t kElems = 4096;
    std::vector<float> full(kElems * size_t(comm.world_size()), -1.0f);
    float* const shard = full.data() + size_t(comm.rank()) * kElems;
    for (size_t i = 0; i < kElems; ++i) shard[i] = TestFixture::value(comm.rank(), i);
    comm.all_gather(device.compute(), shard, kElems * sizeof(float), full.data());
    device.compute().synchronize();
    for (int rank = 0; rank < comm.world_size(); ++rank)
      for (size_t i = 0; i < kElems; ++i)
        ASSERT_EQ(full[size_t(rank) * kElems + i], TestFixture::value(rank, i));
  });
}

TYPED_TEST_P(CommunicatorConformance, CollectivesRunInStreamOrder) {
  this->group_.run([](Communicator& comm, Device& device) {
    constexpr size_t kElems = 2048;
    std::vector<float> shard(kElems, -1.0f), full(kElems * size_t(comm.world_size())), part(kElems);
    const float mine = float(comm.rank() + 1);
    device.compute().enqueue([&shard, mine] { std::fill(shard.begin(), shard.end(), mine); });
    comm.all_gather(device.compute(), shard.data(), kElems * sizeof(float), full.data());
    comm.reduce_scatter(device.compute(), full.data(), full.size(), part.data());
    device.compute().synchronize();
    // Every rank holds the same full buffer, so this rank's part is its own value, world_size times.
    for (size_t i = 0; i < kElems; ++i) ASSERT_EQ(part[i], mine * float(comm.world_size()));
  });
}

TYPED_TEST_P(CommunicatorConformance, ReduceScatterAddsInRankOrder) {
  this->group_.run([](Communicator& comm, Device& device) {
    for (const size_t shard_elems : {size_t(0), size_t(1), size_t(2048), size_t(100'003)}) {
      const size_t elems = shard_elems * size_t(comm.world_size());
      std::vector<float> full(elems), shard(shard_elems + 1, -1.0f);
      for (size_t i = 0; i < elems; ++i) full[i] = TestFixture::value(comm.rank(), i);
      comm.reduce_scatter(device.compute(), full.data(), elems, shard.data());
      device.compute().synchronize();
      const size_t begin = size_t(comm.rank()) * shard_elems;
      for (size_t i = 0; i < shard_elems; ++i) ASSERT_EQ(shard[i], TestFixture::sum_over_ranks(begin + i));
      EXPECT_EQ(shard.back(), -1.0f);
    }
  });
}

TYPED_TEST_P(CommunicatorConformance, AllReduceAddsOverRanks) {
  this->group_.run([](Communicator& comm, Device&) {
    std::vector<double> values = {double(comm.rank() + 1), 0.5};
    comm.all_reduce(values);
    comm.all_reduce({});
    const double world = TestFixture::kWorld;
    EXPECT_EQ(values, (std::vector<double>{world * (world + 1) / 2, world / 2}));
  });
}

TYPED_TEST_P(CommunicatorConformance, BarrierReturns) {
  this->group_.run([](Communicator& comm, Device&) {
    for (int i = 0; i < 10; ++i) comm.barrier();
  });
}

REGISTER_TYPED_TEST_SUITE_P(CommunicatorConformance, RanksAreNumbered, AllGatherPutsShardsInRankOrder,
                            AllGatherTakesAShardThatLiesInTheFullBuffer, CollectivesRunInStreamOrder,
                            ReduceScatterAddsInRankOrder, AllReduceAddsOverRanks, BarrierReturns);

}  // namespace headrace
