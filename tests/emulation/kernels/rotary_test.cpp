// SPDX-License-Identifier: Apache-2.0
// CUDA's rotary positions, run by the emulation: against the formula in double precision.
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/host/host_kernels.h"
#include "tests/emulation/kernels/cases.h"

namespace headrace::kernels {
namespace {

/// rows, seq, rotated_heads, row_stride, head_dim
std::vector<Rotary> cases(DType dtype) {
  std::vector<Rotary> all;
  for (const auto& [rows, seq, heads, stride, dim] : std::vector<std::array<int64_t, 5>>{
           {1, 1, 1, 2, 2},        // one pair
           {6, 3, 2, 24, 6},       // odd halves
           {8, 8, 3, 64, 16},      // a head that is not rotated
           {20, 5, 6, 1000, 128},  // four sequences, more work than threads
           {7, 4, 2, 131, 64},     // rows that are not aligned, the last sequence cut
           {3, 100, 1, 96, 96},    // positions without rows
           {2, 2, 1, 512, 512}})
    all.push_back({rows, seq, heads, stride, dim, 1e4f, dtype});
  return all;
}

Doubles reference(const Rotary& r, Doubles x) {
  const int64_t half = r.head_dim / 2;
  for (int64_t row = 0; row < r.rows; ++row) {
    for (int64_t head = 0; head < r.rotated_heads; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            double(row % r.seq) * std::pow(double(r.theta), -2.0 * double(i) / double(r.head_dim));
        const double turned = r.inverse ? -angle : angle;
        double& low = x[size_t(row * r.row_stride + head * r.head_dim + i)];
        double& high = x[size_t(row * r.row_stride + head * r.head_dim + i + half)];
        const double a = low, b = high;
        low = a * std::cos(turned) - b * std::sin(turned);
        high = b * std::cos(turned) + a * std::sin(turned);
      }
    }
  }
  return x;
}

TEST(CudaRotary, MatchesDoubleBothWaysAndTheHost) {
  EmulatedStream stream;
  for (const DType dtype : {kF32, kBf16}) {
    for (Rotary r : cases(dtype)) {
      for (const size_t shift : kShifts) {
        for (const bool inverse : {false, true}) {
          SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << r.rows << "x" << r.head_dim << " +"
                                          << shift << (inverse ? " inverse" : ""));
          r.inverse = inverse;
          Tensor in = random_tensor(dtype, size_t(r.rows * r.row_stride), 1);
          const DeviceTensor qkv(in, shift);
          cuda::rotary(stream, r, qkv.data());
          const Tensor got = qkv.fetch(stream);
          expect_close(got, reference(r, in.doubles()), 2e-7);
          host::rotary(r, in.data());
          // In bf16 the two may round to different sides.
          expect_close(got, in.doubles(), dtype == kF32 ? 2e-7 : 0x1p-8);
        }
      }
    }
  }
}

TEST(CudaRotary, LeavesOtherHeadsAlone) {
  EmulatedStream stream;
  const Rotary r{4, 4, 1, 48, 16, 1e4f, kBf16};
  const Tensor before = random_tensor(kBf16, 4 * 48, 1);
  const DeviceTensor qkv(before);
  cuda::rotary(stream, r, qkv.data());
  const Tensor after = qkv.fetch(stream);
  for (size_t i = 0; i < 4 * 48; ++i) {
    if (i % 48 >= 16) {
      EXPECT_EQ(after[i], before[i]) << i;
    }
  }
}

TEST(CudaRotary, FarPositionsKeepTheirAngles) {
  EmulatedStream stream;
  const Rotary r{40000, 40000, 1, 2, 2, 1e4f, kF32};  // angles of as many radians
  const Tensor in = random_tensor(kF32, 2 * 40000, 1);
  const DeviceTensor qkv(in);
  cuda::rotary(stream, r, qkv.data());
  expect_close(qkv.fetch(stream), reference(r, in.doubles()), 2e-7);
}

TEST(CudaRotary, NothingIsDoneToNothing) {
  EmulatedStream stream;
  cuda::rotary(stream, {0, 4, 1, 8, 8, 1e4f, kF32}, nullptr);
  stream.synchronize();
}

}  // namespace
}  // namespace headrace::kernels
