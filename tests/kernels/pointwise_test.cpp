// SPDX-License-Identifier: Apache-2.0
#include "kernels/pointwise.h"

#include <limits>

#include "tests/kernels/support.h"

namespace headrace::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Doubles swiglu_reference(const Doubles& gate_up, size_t cols) {
  Doubles y(gate_up.size() / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t row = i / cols, col = i % cols;
    const double z = gate_up[row * 2 * cols + col];
    y[i] = z / (1 + std::exp(-z)) * gate_up[row * 2 * cols + cols + col];
  }
  return y;
}

Doubles gelu_reference(const Doubles& x) {
  Doubles y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = 0.5 * x[i] * (1 + std::tanh(std::sqrt(2 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
  }
  return y;
}

TEST(Swiglu, MatchesDoubleAndItsFiniteDifferences) {
  InlineStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const size_t cols : {1, 5, 16, 37}) {
      const int64_t rows = 3;
      Tensor gate_up = random_tensor(dtype, 6 * cols, 1, 3.0), dy = random_tensor(dtype, 3 * cols, 2);
      Tensor y(dtype, 3 * cols), dgate_up(dtype, 6 * cols);
      const Doubles inputs = gate_up.doubles(), dyd = dy.doubles();
      swiglu_forward(stream, rows, int64_t(cols), dtype, gate_up.data(), y.data());
      swiglu_backward(stream, rows, int64_t(cols), dtype, gate_up.data(), dy.data(), dgate_up.data());
      expect_close(y, swiglu_reference(inputs, cols), 1e-6);
      expect_close(
          dgate_up,
          numeric_gradient([&](const Doubles& v) { return dot(swiglu_reference(v, cols), dyd); }, inputs));
    }
  }
}

TEST(Gelu, MatchesDoubleAndItsFiniteDifferences) {
  InlineStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const size_t elems : {1, 16, 37, 200}) {
      Tensor x = random_tensor(dtype, elems, 1, 2.0), dy = random_tensor(dtype, elems, 2), y(dtype, elems);
      Tensor dx(dtype, elems);
      const Doubles xd = x.doubles(), dyd = dy.doubles();
      gelu_forward(stream, int64_t(elems), dtype, x.data(), y.data());
      gelu_backward(stream, int64_t(elems), dtype, x.data(), dy.data(), dx.data());
      expect_close(y, gelu_reference(xd), 1e-6);
      expect_close(dx, numeric_gradient([&](const Doubles& v) { return dot(gelu_reference(v), dyd); }, xd));
    }
  }
}

TEST(Gelu, SaturatesFarFromZero) {
  InlineStream stream;
  Tensor x(DType::f32, {-1e30, -50, 50, 1e30}), dy(DType::f32, Doubles(4, 1.0)), y(DType::f32, 4),
      dx(DType::f32, 4);
  gelu_forward(stream, 4, DType::f32, x.data(), y.data());
  gelu_backward(stream, 4, DType::f32, x.data(), dy.data(), dx.data());
  expect_close(dx, {0, 0, 1, 1}, 0.0);
  EXPECT_EQ(y[0], 0.0);
  EXPECT_EQ(y[1], 0.0);
  EXPECT_EQ(y[2], 50.0);
  EXPECT_EQ(y[3], double(1e30f));
}

TEST(Add, MayWriteOverAnInput) {
  InlineStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensor a = random_tensor(dtype, 1003, 1), b = random_tensor(dtype, 1003, 2);
    Doubles want = a.doubles();
    for (size_t i = 0; i < want.size(); ++i) want[i] += b[i];
    add(stream, 1003, dtype, a.data(), b.data(), b.data());
    expect_close(b, want, 1e-7);
  }
}

TEST(Cast, RoundsToNearestEvenAndBack) {
  InlineStream stream;
  Tensor x = random_tensor(DType::f32, 77, 1), half(DType::bf16, 77), back(DType::f32, 77);
  x.set(5, 1.0f + 0x1p-8f);  // ties, to even
  x.set(6, 1.0f + 0x3p-8f);
  cast(stream, 77, DType::f32, x.data(), DType::bf16, half.data());
  cast(stream, 77, DType::bf16, half.data(), DType::f32, back.data());
  EXPECT_EQ(back[5], 1.0);
  EXPECT_EQ(back[6], 1.0 + 0x1p-6);
  for (size_t i = 0; i < 77; ++i) EXPECT_EQ(back[i], double(to_float(to_bf16(float(x[i]))))) << i;
}

TEST(Embedding, AddsPositionsForwardAndRowsBackward) {
  InlineStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const size_t cols = 70;
    const Embedding e{.rows = 6, .seq = 3, .cols = int64_t(cols), .vocab = 5, .dtype = dtype};
    const std::vector<int32_t> tokens = {4, 0, 4, 1, 4, 0};
    Tensor table = random_tensor(dtype, 5 * cols, 1), positions = random_tensor(dtype, 3 * cols, 2);
    Tensor y(dtype, 6 * cols), plain(dtype, 6 * cols), dy = random_tensor(dtype, 6 * cols, 3);
    Tensor dtable(DType::f32, Doubles(5 * cols, 1.0)), dpositions(DType::f32, Doubles(3 * cols, 2.0));
    embedding_forward(stream, e, tokens.data(), table.data(), positions.data(), y.data());
    embedding_forward(stream, e, tokens.data(), table.data(), nullptr, plain.data());
    embedding_backward(stream, e, tokens.data(), dy.data(), dtable.floats(), dpositions.floats());
    Doubles want(6 * cols), want_plain(6 * cols), want_table(5 * cols, 1.0), want_positions(3 * cols, 2.0);
    for (size_t row = 0; row < 6; ++row) {
      for (size_t c = 0; c < cols; ++c) {
        const size_t token = size_t(tokens[row]);
        want_plain[row * cols + c] = table[token * cols + c];
        want[row * cols + c] = table[token * cols + c] + positions[row % 3 * cols + c];
        want_table[token * cols + c] += dy[row * cols + c];
        want_positions[row % 3 * cols + c] += dy[row * cols + c];
      }
    }
    expect_close(y, want, 1e-6);
    EXPECT_EQ(plain.doubles(), want_plain);
    expect_close(dtable, want_table, 1e-6);
    expect_close(dpositions, want_positions, 1e-6);
    embedding_backward(stream, e, tokens.data(), dy.data(), dtable.floats(), nullptr);
  }
}

TEST(RoundAndSumSquares, SumsTheRoundedValuesPerTile) {
  InlineStream stream;
  const size_t elems = size_t(kNormTileElems) + 1003;
  for (const DType to : {DType::f32, DType::bf16}) {
    Tensor x = random_tensor(DType::f32, elems, 1), y(to, elems);
    Doubles sums(2);
    round_and_sum_squares(stream, int64_t(elems), x.floats(), to, y.data(), sums.data());
    // The documented order: 16 accumulators, then a tree.
    for (size_t tile = 0; tile < 2; ++tile) {
      double lane[16] = {};
      const size_t first = tile * size_t(kNormTileElems),
                   last = std::min(elems, first + size_t(kNormTileElems));
      for (size_t i = first; i < last; ++i) {
        const float value = float(x[i]);
        const double rounded = to == DType::f32 ? value : to_float(to_bf16(value));
        EXPECT_EQ(y[i], rounded);
        lane[(i - first) % 16] += rounded * rounded;
      }
      for (size_t width = 8; width > 0; width /= 2) {
        for (size_t j = 0; j < width; ++j) lane[j] += lane[j + width];
      }
      EXPECT_EQ(sums[tile], lane[0]);
    }
  }
}

TEST(RoundAndSumSquares, NonFiniteElementMakesItsTileNonFinite) {
  InlineStream stream;
  const size_t elems = size_t(kNormTileElems) * 2;
  for (const DType to : {DType::f32, DType::bf16}) {
    for (const double bad : {kInf, -kInf, std::nan("")}) {
      Tensor x(DType::f32, Doubles(elems, 1.0)), y(to, elems);
      x.set(elems - 1, float(bad));
      Doubles sums(2);
      round_and_sum_squares(stream, int64_t(elems), x.floats(), to, y.data(), sums.data());
      EXPECT_EQ(sums[0], double(kNormTileElems));
      EXPECT_FALSE(std::isfinite(sums[1]));
    }
  }
}

TEST(RoundAndSumSquares, RoundingToInfinityIsSeen) {
  InlineStream stream;
  Tensor x(DType::f32, {1.0, double(std::numeric_limits<float>::max())}), y(DType::bf16, 2);
  double sum = 0;
  round_and_sum_squares(stream, 2, x.floats(), DType::bf16, y.data(), &sum);
  EXPECT_EQ(sum, kInf);
}

}  // namespace
}  // namespace headrace::kernels
