// SPDX-License-Identifier: Apache-2.0
// CUDA's loss, run by the emulation: against double precision and finite differences of it.
#include <limits>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/host/host_kernels.h"
#include "tests/emulation/kernels/cases.h"

namespace headrace::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Softmax {
  double loss = 0;
  Doubles gradient;  ///< of the loss
};

Softmax reference_row(const Doubles& logits, int32_t label) {
  Softmax s{0, Doubles(logits.size(), 0.0)};
  if (label == kIgnoreLabel) return s;
  double top = logits[0], sum = 0;
  for (const double x : logits) top = std::max(top, x);
  for (const double x : logits) sum += std::exp(x - top);
  for (size_t i = 0; i < logits.size(); ++i) s.gradient[i] = std::exp(logits[i] - top) / sum;
  s.gradient[size_t(label)] -= 1;
  s.loss = top + std::log(sum) - logits[size_t(label)];
  return s;
}

Softmax reference(const Doubles& logits, size_t vocab, const std::vector<int32_t>& labels) {
  Softmax all;
  for (size_t row = 0; row < labels.size(); ++row) {
    const auto begin = logits.begin() + ptrdiff_t(row * vocab);
    const Softmax s = reference_row(Doubles(begin, begin + ptrdiff_t(vocab)), labels[row]);
    all.loss += s.loss;
    all.gradient.insert(all.gradient.end(), s.gradient.begin(), s.gradient.end());
  }
  return all;
}

double loss_of(const CrossEntropy& c, const DeviceTensor& logits, const std::vector<int32_t>& labels,
               void* dlogits, double before = 0.0) {
  EmulatedStream stream;
  const DeviceBytes scratch(cuda::cross_entropy_scratch_bytes(c.rows));
  const DeviceValues<int32_t> device_labels(labels);
  const DeviceValues<double> loss({before});
  cuda::cross_entropy(stream, c, logits.floats(), device_labels.data(), loss.data(), dlogits, scratch);
  return loss.fetch(stream)[0];
}

Tensor values_of(const DeviceTensor& tensor) {
  EmulatedStream stream;
  return tensor.fetch(stream);
}

TEST(CudaCrossEntropy, ReferenceGradientIsADifference) {
  const Tensor logits = random_tensor(kF32, 7, 1, 4.0);
  const auto loss = [](const Doubles& v) { return reference_row(v, 3).loss; };
  expect_close(Tensor(kF32, reference_row(logits.doubles(), 3).gradient),
               numeric_gradient(loss, logits.doubles()));
}

/// Odd vocabularies let rows begin at every element of an access.
TEST(CudaCrossEntropy, MatchesDouble) {
  for (const DType dtype : {kF32, kBf16}) {
    for (const size_t vocab : {1, 2, 3, 4, 5, 7, 16, 53, 131, 1031, 9001}) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << vocab << " +" << shift);
        const int32_t last = int32_t(vocab) - 1;
        const std::vector<int32_t> labels = {0, last, kIgnoreLabel, last / 2, last / 3};
        const CrossEntropy c{.rows = 5, .vocab = int64_t(vocab), .grad_scale = 0.125f, .dtype = dtype};
        const Tensor in = random_tensor(kF32, 5 * vocab, 1, 4.0);
        const DeviceTensor logits(in, shift), grad(dtype, 5 * vocab, shift);
        Softmax want = reference(in.doubles(), vocab, labels);
        EXPECT_NEAR(loss_of(c, logits, labels, grad.data(), 1.0), 1.0 + want.loss, 1e-5);
        for (double& g : want.gradient) g *= 0.125;
        expect_close(values_of(grad), want.gradient, 2e-6);
        EXPECT_EQ(loss_of(c, logits, labels, nullptr), loss_of(c, logits, labels, grad.data()));
        if (dtype == kF32) {
          loss_of(c, logits, labels, logits.data());
          EXPECT_EQ(values_of(logits).bytes(), values_of(grad).bytes()) << "in place";
        }
      }
    }
  }
}

TEST(CudaCrossEntropy, GradientMayLieUnlikeTheLogits) {
  const std::vector<int32_t> labels = {5, kIgnoreLabel, 28, 0};
  const CrossEntropy c{.rows = 4, .vocab = 29, .grad_scale = 2.0f, .dtype = kBf16};
  const DeviceTensor logits(random_tensor(kF32, 4 * 29, 1, 4.0));
  const DeviceTensor like(kBf16, 4 * 29), unlike(kBf16, 4 * 29, 1);
  loss_of(c, logits, labels, like.data());
  loss_of(c, logits, labels, unlike.data());
  EXPECT_EQ(values_of(like).bytes(), values_of(unlike).bytes());
}

TEST(CudaCrossEntropy, LargeVocabularyMatchesDoubleAndTheHost) {
  const size_t vocab = 70001;
  const std::vector<int32_t> labels = {70000, 1};
  const CrossEntropy c{.rows = 2, .vocab = int64_t(vocab), .grad_scale = 1.0f, .dtype = kF32};
  Tensor in = random_tensor(kF32, 2 * vocab, 1, 4.0);
  const DeviceTensor logits(in), grad(kF32, 2 * vocab);
  const Softmax want = reference(in.doubles(), vocab, labels);
  EXPECT_NEAR(loss_of(c, logits, labels, grad.data()), want.loss, 1e-5);
  expect_close(values_of(grad), want.gradient, 2e-6);
  Tensor host_grad(kF32, 2 * vocab);
  double loss = 0;
  host::cross_entropy(c, in.floats(), labels.data(), &loss, host_grad.data());
  EXPECT_NEAR(loss, want.loss, 1e-5);
  expect_close(values_of(grad), host_grad.doubles(), 2e-6);
}

TEST(CudaCrossEntropy, ManyRowsAreAllCounted) {
  const size_t rows = 611, vocab = 11;
  std::vector<int32_t> labels(rows);
  for (size_t i = 0; i < rows; ++i) labels[i] = i % 5 == 3 ? kIgnoreLabel : int32_t(i % vocab);
  const Tensor in = random_tensor(kF32, rows * vocab, 1);
  const DeviceTensor logits(in);
  const CrossEntropy c{.rows = int64_t(rows), .vocab = int64_t(vocab), .grad_scale = 1.0f, .dtype = kF32};
  EXPECT_NEAR(loss_of(c, logits, labels, nullptr), reference(in.doubles(), vocab, labels).loss, 1e-4);
}

TEST(CudaCrossEntropy, AllIgnoredIsZeroLossAndZeroGradient) {
  for (const size_t shift : kShifts) {
    const DeviceTensor logits(random_tensor(kF32, 2 * 19, 1));
    const DeviceTensor grad(Tensor(kBf16, Doubles(2 * 19, 7.0)), shift);
    const CrossEntropy c{.rows = 2, .vocab = 19, .grad_scale = 1.0f, .dtype = kBf16};
    EXPECT_EQ(loss_of(c, logits, {kIgnoreLabel, kIgnoreLabel}, grad.data()), 0.0);
    EXPECT_EQ(values_of(grad).doubles(), Doubles(2 * 19, 0.0));
  }
}

TEST(CudaCrossEntropy, LargeLogitsDoNotOverflow) {
  // exp(88) * 1000 overflows fp32.
  const DeviceTensor logits(Tensor(kF32, Doubles(1000, 88.0))), far(Tensor(kF32, {-3e38, 3e38, 0.0, -1e30}));
  const CrossEntropy c{.rows = 1, .vocab = 1000, .grad_scale = 1.0f, .dtype = kF32};
  EXPECT_NEAR(loss_of(c, logits, {999}, nullptr), std::log(1000.0), 1e-5);
  const DeviceTensor grad(kF32, 4);
  const CrossEntropy four{.rows = 1, .vocab = 4, .grad_scale = 1.0f, .dtype = kF32};
  EXPECT_EQ(loss_of(four, far, {1}, grad.data()), 0.0);
  EXPECT_EQ(values_of(grad).doubles(), Doubles(4, 0.0));
}

TEST(CudaCrossEntropy, LogitsOfMinusInfinityHaveNoShare) {
  Tensor in = random_tensor(kF32, 300, 1);
  for (size_t i = 0; i < 290; ++i) in.set(i, -kInf);
  const DeviceTensor logits(in), grad(kF32, 300);
  const CrossEntropy c{.rows = 1, .vocab = 300, .grad_scale = 1.0f, .dtype = kF32};
  const Softmax want = reference(in.doubles(), 300, {295});
  EXPECT_NEAR(loss_of(c, logits, {295}, grad.data()), want.loss, 1e-5);
  expect_close(values_of(grad), want.gradient, 2e-6);
}

TEST(CudaCrossEntropy, NonFiniteLogitsReachTheLoss) {
  for (const float bad : {kInf, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t at : {size_t(0), size_t(20), size_t(36)}) {
      Tensor in = random_tensor(kF32, 37, 1);
      in.set(at, bad);
      const DeviceTensor logits(in);
      const CrossEntropy c{.rows = 1, .vocab = 37, .grad_scale = 1.0f, .dtype = kF32};
      EXPECT_FALSE(std::isfinite(loss_of(c, logits, {3}, nullptr))) << bad << " at " << at;
    }
  }
}

TEST(CudaCrossEntropy, NoRowsAddNothing) {
  const CrossEntropy c{.rows = 0, .vocab = 37, .grad_scale = 1.0f, .dtype = kF32};
  EXPECT_EQ(loss_of(c, DeviceTensor(kF32, 0), {}, nullptr, 2.5), 2.5);
}

}  // namespace
}  // namespace headrace::kernels
