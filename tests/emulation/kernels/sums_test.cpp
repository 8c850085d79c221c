// SPDX-License-Identifier: Apache-2.0
// CUDA's sums, run by the emulation: columns against double precision; squares bit for bit against the order
// that headrace/adam.h documents.
#include <limits>

#include "headrace/adam.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/host/host_kernels.h"
#include "tests/emulation/kernels/cases.h"

namespace headrace::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr size_t kTile = size_t(kNormTileElems);

TEST(CudaColumnSums, MatchDouble) {
  EmulatedStream stream;
  // 64 rows are a group; a block has 32 accesses across.
  for (const DType dtype : {kF32, kBf16}) {
    for (const auto [rows, cols] :
         {Sizes{1, 1}, {3, 5}, {63, 8}, {64, 40}, {65, 33}, {130, 264}, {1500, 16}}) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << rows << "x" << cols << " +" << shift);
        const Tensor in = random_tensor(dtype, rows * cols, 1), before = random_tensor(kF32, cols, 2);
        Doubles want = before.doubles();
        for (size_t i = 0; i < rows * cols; ++i) want[i % cols] += in[i];
        const DeviceTensor x(in, shift), sums(before, shift);
        const DeviceBytes scratch(cuda::column_sums_scratch_bytes(int64_t(rows), int64_t(cols)));
        cuda::add_column_sums(stream, int64_t(rows), int64_t(cols), dtype, x.data(), sums.floats(), scratch);
        expect_close(sums.fetch(stream), want, 3e-6);
      }
    }
  }
}

TEST(CudaColumnSums, NoRowsAddNothing) {
  EmulatedStream stream;
  const Tensor before = random_tensor(kF32, 8, 2);
  const DeviceTensor sums(before);
  cuda::add_column_sums(stream, 0, 8, kBf16, nullptr, sums.floats(), {});
  EXPECT_EQ(sums.fetch(stream).bytes(), before.bytes());
}

/// In each tile element i goes to lane i % 16, the lanes are folded in halves.
double documented_sum(const Tensor& y, size_t first) {
  double lane[16] = {};
  for (size_t i = first; i < std::min(y.size(), first + kTile); ++i) lane[(i - first) % 16] += y[i] * y[i];
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) lane[j] += lane[j + width];
  }
  return lane[0];
}

Doubles sum_squares(EmulatedStream& stream, const DeviceTensor& x, const DeviceTensor& y) {
  const DeviceValues<double> sums(Doubles((x.size() + kTile - 1) / kTile));
  cuda::round_and_sum_squares(stream, int64_t(x.size()), x.floats(), y.dtype(), y.data(), sums.data());
  return sums.fetch(stream);
}

TEST(CudaRoundAndSumSquares, HasTheBitsOfTheDocumentedOrder) {
  EmulatedStream stream;
  // 1024 elements are a stage of the kernel.
  for (const DType to : {kF32, kBf16}) {
    for (const size_t elems :
         {size_t(1), size_t(15), size_t(1003), size_t(1024), size_t(2050), kTile, kTile + 1003}) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(to) << " " << elems << " +" << shift);
        Tensor in = random_tensor(kF32, elems, 1), want(to, elems);
        for (size_t i = 0; i < elems; ++i) want.set(i, float(in[i]));
        const DeviceTensor y(to, elems, shift);
        const Doubles sums = sum_squares(stream, DeviceTensor(in, shift), y);
        EXPECT_EQ(y.fetch(stream).bytes(), want.bytes());
        for (size_t tile = 0; tile < sums.size(); ++tile)
          EXPECT_EQ(sums[tile], documented_sum(want, tile * kTile));
        double total = 0;
        for (const double sum : sums) total += sum;
        EXPECT_EQ(total, adam::sum_squares(adam::Isa::scalar, {want.data(), to}, elems).sum);
        Doubles host_sums(sums.size());
        host::round_and_sum_squares(int64_t(elems), in.floats(), to, want.data(), host_sums.data());
        EXPECT_EQ(sums, host_sums);
      }
    }
  }
}

TEST(CudaRoundAndSumSquares, NonFiniteElementMakesItsTileNonFinite) {
  EmulatedStream stream;
  for (const DType to : {kF32, kBf16}) {
    for (const double bad : {kInf, -kInf, std::nan("")}) {
      Tensor in(kF32, Doubles(kTile + 20, 1.0));
      in.set(kTile + 18, float(bad));
      const Doubles sums = sum_squares(stream, DeviceTensor(in), DeviceTensor(to, kTile + 20));
      EXPECT_EQ(sums[0], double(kTile));
      EXPECT_FALSE(std::isfinite(sums[1]));
    }
  }
}

TEST(CudaRoundAndSumSquares, RoundingToInfinityIsSeen) {
  EmulatedStream stream;
  const DeviceTensor x(Tensor(kF32, {1.0, double(std::numeric_limits<float>::max())}));
  EXPECT_EQ(sum_squares(stream, x, DeviceTensor(kBf16, 2)), Doubles{kInf});
}

TEST(CudaRoundAndSumSquares, NothingIsDoneToNothing) {
  EmulatedStream stream;
  cuda::round_and_sum_squares(stream, 0, nullptr, kBf16, nullptr, nullptr);
  stream.synchronize();
}

}  // namespace
}  // namespace headrace::kernels
