// SPDX-License-Identifier: Apache-2.0
// What every Communicator must do, whatever carries it. An implementation instantiates the suite with a Group
// type:
//   static constexpr int kWorldSize;
//   template <class Body> void run(Body body);   // body(Communicator&, Device&) on every rank; returns when
//   all have
// Buffers are device memory, written and read by copies. Expected values are computed from the ranks' inputs
// by hand-written sums, in rank order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"

namespace headrace {

/// Floats in a device's memory.
class OnDevice {
 public:
  OnDevice(Device& device, const std::vector<float>& values)
      : device_(device),
        elems_(values.size()),
        data_(reinterpret_cast<float*>(device.memory().take(values.size() * sizeof(float), 64, "test"))) {
    write(values);
  }
  [[nodiscard]] float* data() const { return data_; }
  [[nodiscard]] size_t size() const { return elems_; }
  void write(const std::vector<float>& values) {
    device_.compute().copy(data_, values.data(), elems_ * sizeof(float));
    device_.compute().synchronize();
  }
  [[nodiscard]] std::vector<float> read() const {
    std::vector<float> values(elems_);
    device_.compute().copy(values.data(), data_, elems_ * sizeof(float));
    device_.compute().synchronize();
    return values;
  }

 private:
  Device& device_;
  size_t elems_;
  float* data_;
};

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
      std::vector<float> values(elems);
      for (size_t i = 0; i < elems; ++i) values[i] = TestFixture::value(comm.rank(), i);
      const OnDevice shard(device, values);
      const OnDevice full(device, std::vector<float>(elems * size_t(comm.world_size()) + 1, -1.0f));
      comm.all_gather(device.compute(), shard.data(), elems * sizeof(float), full.data());
      const std::vector<float> got = full.read();
      for (int rank = 0; rank < comm.world_size(); ++rank)
        for (size_t i = 0; i < elems; ++i)
          ASSERT_EQ(got[size_t(rank) * elems + i], TestFixture::value(rank, i));
      EXPECT_EQ(got.back(), -1.0f);
    }
  });
}

TYPED_TEST_P(CommunicatorConformance, AllGatherTakesAShardThatLiesInTheFullBuffer) {
  this->group_.run([](Communicator& comm, Device& device) {
    constexpr size_t kElems = 4096;
    std::vector<float> values(kElems * size_t(comm.world_size()), -1.0f);
    const size_t begin = size_t(comm.rank()) * kElems;
    for (size_t i = 0; i < kElems; ++i) values[begin + i] = TestFixture::value(comm.rank(), i);
    const OnDevice full(device, values);
    comm.all_gather(device.compute(), full.data() + begin, kElems * sizeof(float), full.data());
    const std::vector<float> got = full.read();
    for (int rank = 0; rank < comm.world_size(); ++rank)
      for (size_t i = 0; i < kElems; ++i)
        ASSERT_EQ(got[size_t(rank) * kElems + i], TestFixture::value(rank, i));
  });
}

TYPED_TEST_P(CommunicatorConformance, CollectivesRunInStreamOrder) {
  this->group_.run([](Communicator& comm, Device& device) {
    constexpr size_t kElems = 2048;
    const float mine = float(comm.rank() + 1);
    const std::vector<float> filled(kElems, mine);
    const OnDevice shard(device, std::vector<float>(kElems, -1.0f));
    const OnDevice full(device, std::vector<float>(kElems * size_t(comm.world_size())));
    const OnDevice part(device, std::vector<float>(kElems));
    device.compute().copy(shard.data(), filled.data(), kElems * sizeof(float));
    comm.all_gather(device.compute(), shard.data(), kElems * sizeof(float), full.data());
    comm.reduce_scatter(device.compute(), full.data(), full.size(), part.data());
    // Every rank holds the same full buffer, so this rank's part is its own value, world_size times.
    for (const float got : part.read()) ASSERT_EQ(got, mine * float(comm.world_size()));
  });
}

TYPED_TEST_P(CommunicatorConformance, ReduceScatterAddsInRankOrder) {
  this->group_.run([](Communicator& comm, Device& device) {
    for (const size_t shard_elems : {size_t(0), size_t(1), size_t(2048), size_t(100'003)}) {
      const size_t elems = shard_elems * size_t(comm.world_size());
      std::vector<float> values(elems);
      for (size_t i = 0; i < elems; ++i) values[i] = TestFixture::value(comm.rank(), i);
      const OnDevice full(device, values);
      const OnDevice shard(device, std::vector<float>(shard_elems + 1, -1.0f));
      comm.reduce_scatter(device.compute(), full.data(), elems, shard.data());
      const std::vector<float> got = shard.read();
      const size_t begin = size_t(comm.rank()) * shard_elems;
      for (size_t i = 0; i < shard_elems; ++i) ASSERT_EQ(got[i], TestFixture::sum_over_ranks(begin + i));
      EXPECT_EQ(got.back(), -1.0f);
    }
  });
}

TYPED_TEST_P(CommunicatorConformance, AllReduceAddsOverRanks) {
  this->group_.run([](Communicator& comm, Device&) {
    const double world = TestFixture::kWorld;
    comm.all_reduce({});
    for (const size_t count : {size_t(2), size_t(512), size_t(513), size_t(1500)}) {
      std::vector<double> values(count), expected(count);
      for (size_t i = 0; i < count; ++i) {
        values[i] = double(comm.rank() + 1) + 0.5 * double(i);
        expected[i] = world * (world + 1) / 2 + world * 0.5 * double(i);
      }
      comm.all_reduce(values);
      EXPECT_EQ(values, expected);
    }
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
