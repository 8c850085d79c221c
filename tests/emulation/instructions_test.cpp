// SPDX-License-Identifier: Apache-2.0
// Matrix instructions and asynchronous copies against plain loops over the layouts that the PTX ISA gives.
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cuda/port.h"
#include "tests/emulation/self_test.h"

namespace headrace::emulation {
namespace {

using kernels::cuda::copy_async_16;
using kernels::cuda::copy_async_commit;
using kernels::cuda::copy_async_wait;
using kernels::cuda::kAllLanes;
using kernels::cuda::shared_memory;

std::vector<float> random_bf16_values(size_t elems, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(elems);
  for (float& v : values) v = to_float(to_bf16(normal(generator)));
  return values;
}

/// Register `index` of a, b or d holds the elements (row, col) and (row, col + 1), or (row, col) and
/// (row + 1, col) for b: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
__global__ void multiply(const float* a, const float* b, float* d, int times) {
  const int lane = int(threadIdx.x) % 32, group = lane >> 2, in_group = lane & 3;
  uint32_t a_fragment[4], b_fragment[2];
  float d_fragment[4];
  for (int i = 0; i < 8; i += 2) {
    const int row = (i == 0 || i == 1 || i == 4 || i == 5) ? group : group + 8;
    const int col = in_group * 2 + (i >= 4 ? 8 : 0);
    a_fragment[i / 2] = kernels::cuda::pack_bf16(a[row * 16 + col], a[row * 16 + col + 1]);
  }
  for (int i = 0; i < 4; i += 2) {
    const int row = in_group * 2 + (i >= 2 ? 8 : 0);
    b_fragment[i / 2] = kernels::cuda::pack_bf16(b[row * 8 + group], b[(row + 1) * 8 + group]);
  }
  for (int i = 0; i < 4; ++i) d_fragment[i] = d[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)];
  for (int i = 0; i < times; ++i)
    kernels::cuda::multiply_add_16x8x16(d_fragment, a_fragment, b_fragment[0], b_fragment[1]);
  for (int i = 0; i < 4; ++i) d[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = d_fragment[i];
}

TEST(Instructions, AMatrixProductIsThatOfAPlainLoop) {
  const std::vector<float> a = random_bf16_values(16 * 16, 1), b = random_bf16_values(16 * 8, 2),
                           before = random_bf16_values(16 * 8, 3);
  const DeviceArray<float> device_a(a), device_b(b), d(before);
  ASSERT_EQ(run(multiply, 1, 32, 0, device_a, device_b, d, 2), cudaSuccess);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      double product = 0;
      for (size_t k = 0; k < 16; ++k) product += double(a[i * 16 + k]) * double(b[k * 8 + j]);
      EXPECT_NEAR(d[i * 8 + j], before[i * 8 + j] + 2 * product, 1e-5) << i << "," << j;
    }
  }
}

TEST(Instructions, AMatrixProductOfExactNumbersIsExact) {
  // Small integers: every product and sum is exact in fp32, whatever the order.
  std::vector<float> a(16 * 16), b(16 * 8);
  for (size_t i = 0; i < a.size(); ++i) a[i] = float(int(i * 7 % 19) - 9);
  for (size_t i = 0; i < b.size(); ++i) b[i] = float(int(i * 5 % 23) - 11);
  const DeviceArray<float> device_a(a), device_b(b), d(std::vector<float>(16 * 8, 0.5f));
  ASSERT_EQ(run(multiply, 1, 32, 0, device_a, device_b, d, 1), cudaSuccess);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      float expected = 0.5f;
      for (size_t k = 0; k < 16; ++k) expected += a[i * 16 + k] * b[k * 8 + j];
      EXPECT_EQ(d[i * 8 + j], expected);
    }
  }
}

__global__ void load_four(bool transposed, uint16_t* low, uint16_t* high) {
  uint16_t* const shared = shared_memory<uint16_t>();
  for (int i = 0; i < 8; ++i) shared[threadIdx.x * 8 + unsigned(i)] = uint16_t(threadIdx.x * 8 + unsigned(i));
  __syncwarp();
  uint32_t r[4];
  if (transposed) {
    kernels::cuda::load_matrices_transposed(r, shared + threadIdx.x * 8);
  } else {
    kernels::cuda::load_matrices(r, shared + threadIdx.x * 8);
  }
  for (unsigned j = 0; j < 4; ++j) {
    low[threadIdx.x * 4 + j] = uint16_t(r[j]);
    high[threadIdx.x * 4 + j] = uint16_t(r[j] >> 16);
  }
}

TEST(Instructions, FourMatricesAreLoadedRowByRowOrTransposed) {
  // Element (row, col) of matrix j holds 64 j + 8 row + col.
  for (const bool transposed : {false, true}) {
    const DeviceArray<uint16_t> low(128), high(128);
    ASSERT_EQ(run(load_four, 1, 32, 512, transposed, low, high), cudaSuccess);
    for (int lane = 0; lane < 32; ++lane) {
      for (int j = 0; j < 4; ++j) {
        const int row = lane / 4, col = 2 * (lane % 4);
        EXPECT_EQ(low[lane * 4 + j], 64 * j + (transposed ? 8 * col + row : 8 * row + col));
        EXPECT_EQ(high[lane * 4 + j], 64 * j + (transposed ? 8 * (col + 1) + row : 8 * row + col + 1));
      }
    }
  }
}

/// Two groups of one copy; what is seen after waiting for all but `pending` of them.
__global__ void copy_two_groups(const float* from, int pending, float* seen) {
  float* const shared = shared_memory<float>();
  for (int i = 0; i < 8; ++i) shared[i] = -1.0f;
  copy_async_16(shared, from);
  copy_async_commit();
  copy_async_16(shared + 4, from + 4, false);
  copy_async_commit();
  if (pending == 1) copy_async_wait<1>();
  if (pending == 0) copy_async_wait<0>();
  for (int i = 0; i < 8; ++i) seen[i] = shared[i];
}

TEST(Instructions, AnAsynchronousCopyArrivesWithTheWaitThatCoversIt) {
  const DeviceArray<float> from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}), seen(8);
  const auto seen_after = [&](int pending) {
    EXPECT_EQ(run(copy_two_groups, 1, 1, 32, from, pending, seen), cudaSuccess);
    return seen.values();
  };
  const std::vector<float> none = seen_after(2), first = seen_after(1), both = seen_after(0);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::isnan(none[i]));  // neither what was there nor what will be
    EXPECT_TRUE(std::isnan(none[i + 4]));
    EXPECT_EQ(first[i], float(i + 1));
    EXPECT_TRUE(std::isnan(first[i + 4]));
    EXPECT_EQ(both[i], float(i + 1));
    EXPECT_EQ(both[i + 4], 0.0f);  // not valid: zeros
  }
}

__global__ void read_shared(float* x, uint16_t* bits) {
  x[threadIdx.x] = shared_memory<float>()[threadIdx.x];
  bits[threadIdx.x] = uint16_t(shared_memory<bf16>()[threadIdx.x]);
  shared_memory<float>()[threadIdx.x] = 1.0f;
}

TEST(Instructions, SharedMemoryIsNaNBeforeItsFirstWriteInEveryBlock) {
  const DeviceArray<float> x(32);
  const DeviceArray<uint16_t> bits(32);
  ASSERT_EQ(run(read_shared, 3, 1, 128, x, bits), cudaSuccess);
  EXPECT_TRUE(std::isnan(x[0]));
  EXPECT_TRUE(std::isnan(to_float(bf16(bits[0]))));
}

}  // namespace
}  // namespace headrace::emulation
