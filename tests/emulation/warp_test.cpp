// SPDX-License-Identifier: Apache-2.0
// Warp functions, barriers and atomics against plain loops over lanes.
#include <numeric>

#include "kernels/cuda/port.h"
#include "tests/emulation/self_test.h"

namespace headrace::emulation {
namespace {

using kernels::cuda::kAllLanes;
using kernels::cuda::shared_memory;

template <class T>
__global__ void shuffles(T* idx, T* xor_, T* down, T* up) {
  const T x = T(100 + threadIdx.x);
  idx[threadIdx.x] = __shfl_sync(kAllLanes, x, int(threadIdx.x * 7) % 32);
  xor_[threadIdx.x] = __shfl_xor_sync(kAllLanes, x, 5);
  down[threadIdx.x] = __shfl_down_sync(kAllLanes, x, 3);
  up[threadIdx.x] = __shfl_up_sync(kAllLanes, x, 3);
}

template <class T>
class Shuffles : public testing::Test {};
using ShuffledTypes = testing::Types<int, unsigned, float, double, int64_t, uint64_t>;
TYPED_TEST_SUITE(Shuffles, ShuffledTypes);

TYPED_TEST(Shuffles, TakeTheValueOfTheLaneTheyName) {
  const DeviceArray<TypeParam> idx(64), xor_(64), down(64), up(64);
  ASSERT_EQ(run(shuffles<TypeParam>, 1, 64, 0, idx, xor_, down, up), cudaSuccess);
  for (int t = 0; t < 64; ++t) {
    const int warp = t / 32 * 32, lane = t % 32;
    EXPECT_EQ(idx[t], TypeParam(100 + warp + (t * 7) % 32));
    EXPECT_EQ(xor_[t], TypeParam(100 + warp + (lane ^ 5)));
    EXPECT_EQ(down[t], TypeParam(100 + warp + (lane + 3 < 32 ? lane + 3 : lane)));
    EXPECT_EQ(up[t], TypeParam(100 + warp + (lane >= 3 ? lane - 3 : lane)));
  }
}

__global__ void segmented_shuffles(int* idx, int* xor_, int* down, int* up) {
  const int x = int(threadIdx.x);
  idx[x] = __shfl_sync(kAllLanes, x, 10, 8);
  xor_[x] = __shfl_xor_sync(kAllLanes, x, 4, 8);
  down[x] = __shfl_down_sync(kAllLanes, x, 2, 8);
  up[x] = __shfl_up_sync(kAllLanes, x, 2, 8);
}

TEST(Warp, ShufflesOfAWidthStayInTheirSegment) {
  const DeviceArray<int> idx(32), xor_(32), down(32), up(32);
  ASSERT_EQ(run(segmented_shuffles, 1, 32, 0, idx, xor_, down, up), cudaSuccess);
  for (int lane = 0; lane < 32; ++lane) {
    const int begin = lane / 8 * 8, in = lane % 8;
    EXPECT_EQ(idx[lane], begin + 2);
    EXPECT_EQ(xor_[lane], begin + (in ^ 4));
    EXPECT_EQ(down[lane], in + 2 < 8 ? lane + 2 : lane);
    EXPECT_EQ(up[lane], in >= 2 ? lane - 2 : lane);
  }
}

__global__ void votes(unsigned* ballots, int* any, int* all) {
  const unsigned t = threadIdx.x;
  ballots[t] = __ballot_sync(kAllLanes, t % 3 == 0);
  any[t] = __any_sync(kAllLanes, t == 40);
  all[t] = __all_sync(kAllLanes, t >= 32);
}

TEST(Warp, VotesCountEveryLaneOfTheirWarp) {
  const DeviceArray<unsigned> ballots(64);
  const DeviceArray<int> any(64), all(64);
  ASSERT_EQ(run(votes, 1, 64, 0, ballots, any, all), cudaSuccess);
  for (unsigned t = 0; t < 64; ++t) {
    unsigned expected = 0;
    for (unsigned lane = 0; lane < 32; ++lane) expected |= unsigned((t / 32 * 32 + lane) % 3 == 0) << lane;
    EXPECT_EQ(ballots[t], expected);
    EXPECT_EQ(any[t], t >= 32 ? 1 : 0);
    EXPECT_EQ(all[t], t >= 32 ? 1 : 0);
  }
}

__global__ void count_lanes(int rounds, int* totals) {
  // Warps go through their meetings at their own pace; words of one meeting are not those of the next.
  int total = 0;
  for (int round = 0; round < rounds + int(threadIdx.x / 32); ++round)
    total += __shfl_sync(kAllLanes, int(threadIdx.x) + round, (round * 5) % 32);
  totals[threadIdx.x] = total;
}

TEST(Warp, ManyMeetingsInARowKeepTheirWordsApart) {
  const DeviceArray<int> totals(96);
  ASSERT_EQ(run(count_lanes, 1, 96, 0, 100, totals), cudaSuccess);
  for (int t = 0; t < 96; ++t) {
    int expected = 0;
    for (int round = 0; round < 100 + t / 32; ++round) expected += t / 32 * 32 + (round * 5) % 32 + round;
    EXPECT_EQ(totals[t], expected);
  }
}

template <class T>
__global__ void sums(const T* x, T* block, T* warp) {
  const T mine = x[threadIdx.x];
  const T sum = kernels::cuda::block_sum(mine, shared_memory<T>());
  const T again = kernels::cuda::block_sum(T(2) * mine, shared_memory<T>());
  block[threadIdx.x] = again - sum;
  warp[threadIdx.x] = kernels::cuda::warp_sum(mine);
}

TEST(Warp, SumsOverWarpsAndBlocksAreSums) {
  std::vector<double> values(256);
  std::iota(values.begin(), values.end(), 1.0);
  const DeviceArray<double> x(values), block(256), warp(256);
  ASSERT_EQ(run(sums<double>, 2, 256, 8 * sizeof(double), x, block, warp), cudaSuccess);
  for (size_t t = 0; t < 256; ++t) {
    EXPECT_EQ(block[t], 256.0 * 257.0 / 2.0);
    const auto begin = values.begin() + ptrdiff_t(t / 32 * 32);
    EXPECT_EQ(warp[t], std::accumulate(begin, begin + 32, 0.0));
  }
}

__global__ void indices(uint3* seen, unsigned* extents) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  seen[block * threads + thread] = {block, thread, 7};
  if (block == 0 && thread == 0) extents[0] = threads;
}

TEST(Warp, EveryThreadOfEveryBlockRunsOnceWithItsIndices) {
  const dim3 grid(3, 2, 2), block(5, 3, 2);
  const DeviceArray<uint3> seen(12 * 30);
  const DeviceArray<unsigned> extents(1);
  ASSERT_EQ(run(indices, grid, block, 0, seen, extents), cudaSuccess);
  EXPECT_EQ(extents[0], 30u);
  for (unsigned i = 0; i < 12 * 30; ++i) {
    EXPECT_EQ(seen[i].x, i / 30);
    EXPECT_EQ(seen[i].y, i % 30);
  }
}

template <class T>
__global__ void atomics(T* sum, T* most, T* least) {
  const T x = T((blockIdx.x * blockDim.x + threadIdx.x) * 37 % 101);
  atomicAdd(sum, x);
  atomicMax(most, x);
  atomicMin(least, x);
}

template <class T>
class Atomics : public testing::Test {};
using AtomicTypes = testing::Types<int, unsigned, unsigned long long>;
TYPED_TEST_SUITE(Atomics, AtomicTypes);

TYPED_TEST(Atomics, AddUpOverAllThreads) {
  const DeviceArray<TypeParam> sum(std::vector<TypeParam>{0}), most(std::vector<TypeParam>{0}),
      least(std::vector<TypeParam>{50});
  ASSERT_EQ(run(atomics<TypeParam>, 4, 50, 0, sum, most, least), cudaSuccess);
  TypeParam expected = 0;
  for (unsigned i = 0; i < 200; ++i) expected += TypeParam(i * 37 % 101);
  EXPECT_EQ(sum[0], expected);
  EXPECT_EQ(most[0], TypeParam(100));
  EXPECT_EQ(least[0], TypeParam(0));
}

}  // namespace
}  // namespace headrace::emulation
