// SPDX-License-Identifier: Apache-2.0
// CUDA's sums, run by the emulation: columns against double precision; squares bit for bit against the order
// that headrace/adam.h documents.
#include <limits>

#include "headrace/adam.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/host/host_kernels.h"
#include "tests/emulation/kernels/placed.h"

namespace headrace::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr size_t kTile = size_t(kNormTileElems);

struct Sizes {
  size_t rows, cols;
};

TEST(CudaColumnSums, MatchDouble) {
  // 64 rows are a group; a block has 32 accesses across.
  for (const DType dtype : {kF32, kBf16}) {
    for (const auto [rows, cols] :
         {Sizes{1, 1}, {3, 5}, {63, 8}, {64, 40}, {65, 33}, {130, 264}, {1500, 16}}) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << rows << "x" << cols << " +" << shift);
        Placed x(random_tensor(dtype, rows * cols, 1), shift), sums(random_tensor(kF32, cols, 2), shift);
        Doubles want = sums.get().doubles();
        for (size_t i = 0; i < rows * cols; ++i) want[i % cols] += x.get()[i];
        ScratchMemory scratch(cuda::column_sums_scratch_bytes(int64_t(rows), int64_t(cols)));
        run([&](auto on) {
          cuda::add_column_sums(on, int64_t(rows), int64_t(cols), dtype, x.data(), sums.floats(), scratch);
        });
        expect_close(sums.get(), want, 3e-6);
      }
    }
  }
}

TEST(CudaColumnSums, NoRowsAddNothing) {
  Placed sums(random_tensor(kF32, 8, 2), 0);
  const std::vector<std::byte> before = sums.get().bytes();
  run([&](auto on) { cuda::add_column_sums(on, 0, 8, kBf16, nullptr, sums.floats(), {}); });
  EXPECT_EQ(sums.get().bytes(), before);
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

TEST(CudaRoundAndSumSquares, HasTheBitsOfTheDocumentedOrder) {
  // 1024 elements are a stage of the kernel.
  for (const DType to : {kF32, kBf16}) {
    for (const size_t elems :
         {size_t(1), size_t(15), size_t(1003), size_t(1024), size_t(2050), kTile, kTile + 1003}) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(to) << " " << elems << " +" << shift);
        Placed x(random_tensor(kF32, elems, 1), shift), y(to, elems, shift);
        Doubles sums((elems + kTile - 1) / kTile);
        run([&](auto on) {
          cuda::round_and_sum_squares(on, int64_t(elems), x.floats(), to, y.data(), sums.data());
        });
        Tensor want(to, elems);
        for (size_t i = 0; i < elems; ++i) want.set(i, float(x.get()[i]));
        EXPECT_EQ(y.get().bytes(), want.bytes());
        for (size_t tile = 0; tile < sums.size(); ++tile)
          EXPECT_EQ(sums[tile], documented_sum(want, tile * kTile));
        double total = 0;
        for (const double sum : sums) total += sum;
        EXPECT_EQ(total, adam::sum_squares(adam::Isa::scalar, {want.data(), to}, elems).sum);
        Doubles host_sums(sums.size());
        host::round_and_sum_squares(int64_t(elems), x.floats(), to, want.data(), host_sums.data());
        EXPECT_EQ(sums, host_sums);
      }
    }
  }
}

TEST(CudaRoundAndSumSquares, NonFiniteElementMakesItsTileNonFinite) {
  for (const DType to : {kF32, kBf16}) {
    for (const double bad : {kInf, -kInf, std::nan("")}) {
      Tensor x(kF32, Doubles(kTile + 20, 1.0)), y(to, kTile + 20);
      x.set(kTile + 18, float(bad));
      Doubles sums(2);
      run([&](auto on) {
        cuda::round_and_sum_squares(on, int64_t(kTile + 20), x.floats(), to, y.data(), sums.data());
      });
      EXPECT_EQ(sums[0], double(kTile));
      EXPECT_FALSE(std::isfinite(sums[1]));
    }
  }
}

TEST(CudaRoundAndSumSquares, RoundingToInfinityIsSeen) {
  Tensor x(kF32, {1.0, double(std::numeric_limits<float>::max())}), y(kBf16, 2);
  double sum = 0;
  run([&](auto on) { cuda::round_and_sum_squares(on, 2, x.floats(), kBf16, y.data(), &sum); });
  EXPECT_EQ(sum, kInf);
}

TEST(CudaRoundAndSumSquares, NothingIsDoneToNothing) {
  run([&](auto on) { cuda::round_and_sum_squares(on, 0, nullptr, kBf16, nullptr, nullptr); });
}

}  // namespace
}  // namespace headrace::kernels
