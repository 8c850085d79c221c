// SPDX-License-Identifier: Apache-2.0
// Element by element kernels and the optimizer's update at the sizes of real models, against the host's. What
// is one rounding has the same bits; exponentials are allowed a few units in the last place.
#include "kernels/pointwise.h"

#include "headrace/adam.h"
#include "kernels/adamw.h"
#include "twins.h"

namespace headrace::test {
namespace {

constexpr double kTolerance = 2e-5;

struct SizeCase {
  const char* name;
  int64_t rows, cols;
};
class PointwiseOnGpu : public CaseInDType<SizeCase> {
 protected:
  [[nodiscard]] int64_t rows() const { return std::get<0>(GetParam()).rows; }
  [[nodiscard]] int64_t cols() const { return std::get<0>(GetParam()).cols; }
  [[nodiscard]] int64_t elems() const { return rows() * cols(); }
  [[nodiscard]] DType dtype() const { return std::get<1>(GetParam()); }
  [[nodiscard]] size_t device_bytes() const { return size_t(elems()) * 28 + 16 * kMiB; }
};

TEST_P(PointwiseOnGpu, SwigluAgreesWithTheHost) {
  Twins twins(device_bytes());
  const Buffer gate_up = twins.noise(dtype(), 2 * elems(), 3.0), dy = twins.noise(dtype(), elems());
  const Buffer y = twins.zeros(dtype(), elems()), dgate_up = twins.zeros(dtype(), 2 * elems());
  twins.run([&](Side& on) {
    kernels::swiglu_forward(on.stream(), rows(), cols(), dtype(), on.at(gate_up), on.at(y));
    kernels::swiglu_backward(on.stream(), rows(), cols(), dtype(), on.at(gate_up), on.at(dy),
                             on.at(dgate_up));
  });
  twins.expect_near(y, "y", {kTolerance, cols()});
  twins.expect_near(dgate_up, "dgate_up", {kTolerance, cols()});
}

TEST_P(PointwiseOnGpu, GeluAgreesWithTheHost) {
  Twins twins(device_bytes());
  const Buffer x = twins.noise(dtype(), elems(), 3.0), dy = twins.noise(dtype(), elems());
  const Buffer y = twins.zeros(dtype(), elems()), dx = twins.zeros(dtype(), elems());
  twins.run([&](Side& on) {
    kernels::gelu_forward(on.stream(), elems(), dtype(), on.at(x), on.at(y));
    kernels::gelu_backward(on.stream(), elems(), dtype(), on.at(x), on.at(dy), on.at(dx));
  });
  twins.expect_near(y, "y", {kTolerance, cols()});
  twins.expect_near(dx, "dx", {kTolerance, cols()});
}

TEST_P(PointwiseOnGpu, SumsAndCastsHaveTheHostsBits) {
  Twins twins(device_bytes());
  const DType other = dtype() == DType::f32 ? DType::bf16 : DType::f32;
  const Buffer a = twins.noise(dtype(), elems()), b = twins.noise(dtype(), elems(), 100.0);
  const Buffer y = twins.zeros(dtype(), elems()), cast = twins.zeros(other, elems());
  twins.run([&](Side& on) {
    kernels::cast(on.stream(), elems(), dtype(), on.at(a), other, on.at(cast));
    kernels::add(on.stream(), elems(), dtype(), on.at(a), on.at(b), on.at(y));
    kernels::add(on.stream(), elems(), dtype(), on.at(a), on.at(y), on.at(a));  // y may be a
  });
  twins.expect_same(cast, "cast");
  twins.expect_same(y, "a + b");
  twins.expect_same(a, "a + (a + b)");
}

TEST_P(PointwiseOnGpu, GradientHandOverHasTheHostsBitsAndSums) {
  Twins twins(device_bytes());
  const int64_t tiles = (elems() + kernels::kNormTileElems - 1) / kernels::kNormTileElems;
  const Buffer x = twins.noise(DType::f32, elems()), y = twins.zeros(dtype(), elems());
  const Buffer sums = twins.zeros(Format::f64, tiles);
  twins.run([&](Side& on) {
    kernels::round_and_sum_squares(on.stream(), elems(), on.at<float>(x), dtype(), on.at(y),
                                   on.at<double>(sums));
  });
  twins.expect_same(y, "y");
  twins.expect_near(sums, "sums of squares", {1e-11, 1});
}

TEST_P(PointwiseOnGpu, AdamwHasTheHostsBits) {
  Twins twins(device_bytes());
  const int64_t n = elems();
  const Buffer w = twins.noise(dtype(), n, 0.02), m = twins.noise(DType::f32, n, 1e-3);
  const Buffer v = twins.noise(DType::f32, n, 1e-7, 1e-6), grad = twins.noise(dtype(), n, 1e-2);
  std::vector<uint16_t> lower(static_cast<size_t>(dtype() == DType::bf16 ? n : 0));
  for (size_t i = 0; i < lower.size(); ++i) lower[i] = uint16_t(i * 40503);
  const Buffer lo = twins.values(Format::u16, lower);
  const adam::StepScalars scalars = adam::make_scalars({.lr = 3e-4, .weight_decay = 0.1}, 7, 0.37);
  const auto count = static_cast<size_t>(n);
  twins.run([&](Side& on) {
    if (on.kind() == DeviceKind::cuda) {
      const kernels::AdamwSpan span{n,
                                    dtype(),
                                    on.at(w),
                                    lower.empty() ? nullptr : on.at<uint16_t>(lo),
                                    on.at<float>(m),
                                    on.at<float>(v),
                                    on.at(grad),
                                    scalars};
      return kernels::adamw(on.stream(), {&span, 1});
    }
    const adam::Gradient gradient{on.at(grad), dtype()};
    const std::span<float> m_span(on.at<float>(m), count), v_span(on.at<float>(v), count);
    if (dtype() == DType::f32)
      return adam::adamw({on.at<float>(w), count}, m_span, v_span, gradient, scalars);
    adam::adamw({on.at<bf16>(w), count}, {on.at<uint16_t>(lo), count}, m_span, v_span, gradient, scalars);
  });
  twins.expect_same(w, "weights");
  twins.expect_same(lo, "lo");
  twins.expect_same(m, "m");
  twins.expect_same(v, "v");
}

INSTANTIATE_TEST_SUITE_P(Cuda, PointwiseOnGpu,
                         testing::Combine(testing::Values(SizeCase{"small", 37, 65}, SizeCase{"one", 1, 1},
                                                          SizeCase{"square", 4096, 4096},
                                                          SizeCase{"odd", 1023, 11007}),
                                          both_dtypes()),
                         case_name<SizeCase>);

}  // namespace
}  // namespace headrace::test
