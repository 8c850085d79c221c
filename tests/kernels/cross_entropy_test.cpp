// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/pointwise.h"
#include "tests/kernels/support.h"

namespace headrace::kernels {
namespace {

double row_loss(const double* logits, size_t vocab, int32_t label) {
  double top = logits[0], sum = 0;
  for (size_t i = 0; i < vocab; ++i) top = std::max(top, logits[i]);
  for (size_t i = 0; i < vocab; ++i) sum += std::exp(logits[i] - top);
  return top + std::log(sum) - logits[label];
}

double reference(const Doubles& logits, size_t vocab, const std::vector<int32_t>& labels) {
  double loss = 0;
  for (size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] != kIgnoreLabel) loss += row_loss(&logits[row * vocab], vocab, labels[row]);
  }
  return loss;
}

TEST(CrossEntropy, MatchesDoubleAndItsFiniteDifferences) {
  InlineStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const size_t vocab : {1, 7, 16, 53, 131}) {
      const int32_t last = int32_t(vocab) - 1;
      const std::vector<int32_t> labels = {0, last, kIgnoreLabel, last / 2};
      const CrossEntropy c{.rows = 4, .vocab = int64_t(vocab), .grad_scale = 0.125f, .dtype = dtype};
      Tensor logits = random_tensor(DType::f32, 4 * vocab, 1, 4.0), grad(dtype, 4 * vocab);
      const Doubles inputs = logits.doubles();
      double loss = 1.0;
      cross_entropy(stream, c, logits.floats(), labels.data(), &loss, grad.data(), {});
      EXPECT_NEAR(loss, 1.0 + reference(inputs, vocab, labels), 1e-5);
      Doubles want = numeric_gradient([&](const Doubles& v) { return reference(v, vocab, labels); }, inputs);
      for (double& w : want) w *= 0.125;
      expect_close(grad, want);
      if (dtype == DType::f32) {
        cross_entropy(stream, c, logits.floats(), labels.data(), &loss, logits.data(), {});
        EXPECT_EQ(logits.bytes(), grad.bytes()) << "in place";
      }
    }
  }
}

TEST(CrossEntropy, ChunksOfRowsGiveTheSameSum) {
  InlineStream stream;
  const size_t vocab = 37, rows = 300;
  Tensor logits = random_tensor(DType::f32, rows * vocab, 1);
  std::vector<int32_t> labels(rows);
  for (size_t i = 0; i < rows; ++i) labels[i] = i % 5 == 3 ? kIgnoreLabel : int32_t(i % vocab);
  CrossEntropy c{.rows = int64_t(rows), .vocab = int64_t(vocab), .grad_scale = 1.0f, .dtype = DType::f32};
  double whole = 0.0, chunked = 0.0;
  cross_entropy(stream, c, logits.floats(), labels.data(), &whole, nullptr, {});
  for (size_t first = 0; first < rows; first += 70) {
    c.rows = int64_t(std::min<size_t>(70, rows - first));
    cross_entropy(stream, c, logits.floats() + first * vocab, labels.data() + first, &chunked, nullptr, {});
  }
  EXPECT_EQ(whole, chunked);
}

TEST(CrossEntropy, AllIgnoredIsZeroLossAndZeroGradient) {
  InlineStream stream;
  Tensor logits = random_tensor(DType::f32, 2 * 19, 1), grad(DType::bf16, Doubles(2 * 19, 7.0));
  const std::vector<int32_t> labels = {kIgnoreLabel, kIgnoreLabel};
  double loss = 0.0;
  cross_entropy(stream, {.rows = 2, .vocab = 19, .grad_scale = 1.0f, .dtype = DType::bf16}, logits.floats(),
                labels.data(), &loss, grad.data(), {});
  EXPECT_EQ(loss, 0.0);
  EXPECT_EQ(grad.doubles(), Doubles(2 * 19, 0.0));
}

TEST(CrossEntropy, UniformLogitsCostLogOfVocab) {
  InlineStream stream;
  Tensor logits(DType::f32, Doubles(1000, 88.0));  // exp(88) * 1000 overflows fp32
  const int32_t label = 999;
  double loss = 0.0;
  cross_entropy(stream, {.rows = 1, .vocab = 1000, .grad_scale = 1.0f, .dtype = DType::f32}, logits.floats(),
                &label, &loss, nullptr, {});
  EXPECT_NEAR(loss, std::log(1000.0), 1e-5);
}

TEST(CrossEntropy, NonFiniteLogitsReachTheLoss) {
  InlineStream stream;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t at : {size_t(0), size_t(20), size_t(36)}) {
      Tensor logits = random_tensor(DType::f32, 37, 1);
      logits.set(at, bad);
      const int32_t label = 3;
      double loss = 0.0;
      cross_entropy(stream, {.rows = 1, .vocab = 37, .grad_scale = 1.0f, .dtype = DType::f32},
                    logits.floats(), &label, &loss, nullptr, {});
      EXPECT_FALSE(std::isfinite(loss)) << bad << " at " << at;
    }
  }
}

}  // namespace
}  // namespace headrace::kernels
