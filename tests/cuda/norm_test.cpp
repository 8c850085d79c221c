// SPDX-License-Identifier: Apache-2.0
// Norms at the sizes of real models, against the host's.
#include "kernels/norm.h"

#include "twins.h"

namespace headrace::test {
namespace {

constexpr double kTolerance = 2e-5;

struct NormCase {
  const char* name;
  int64_t rows, cols;
  bool residual;
};
class NormOnGpu : public CaseInDType<NormCase> {
 protected:
  [[nodiscard]] const NormCase& shape() const { return std::get<0>(GetParam()); }
  [[nodiscard]] DType dtype() const { return std::get<1>(GetParam()); }
  [[nodiscard]] int64_t elems() const { return shape().rows * shape().cols; }
  [[nodiscard]] size_t device_bytes() const { return size_t(elems()) * 24 + 64 * kMiB; }
};

TEST_P(NormOnGpu, RmsNormAgreesWithTheHost) {
  const auto [name, rows, cols, residual] = shape();
  const kernels::RmsNorm n{rows, cols, 1e-5f, dtype()};
  Twins twins(device_bytes());
  const Buffer x = twins.noise(dtype(), elems(), 2.0, 0.5), w = twins.noise(dtype(), cols, 0.1, 1.0);
  const Buffer dy = twins.noise(dtype(), elems()), dx = twins.noise(dtype(), elems());
  const Buffer y = twins.zeros(dtype(), elems()), rstd = twins.zeros(Format::f32, rows);
  const Buffer dw = twins.noise(DType::f32, cols);
  twins.run([&](Side& on) {
    kernels::rms_norm_forward(on.stream(), n, on.at(x), on.at(w), on.at(y), on.at<float>(rstd));
  });
  twins.expect_near(y, "y", {kTolerance, cols});
  twins.expect_near(rstd, "rstd", {kTolerance, 1});
  twins.take_from_host(rstd);
  twins.run([&](Side& on) {
    kernels::rms_norm_backward(on.stream(), n, on.at(x), on.at(w), on.at<float>(rstd), on.at(dy),
                               residual ? on.at(dx) : nullptr, on.at(dx), on.at<float>(dw),
                               on.scratch(kernels::norm_scratch_bytes(on.kind(), rows, cols)));
  });
  twins.expect_near(dx, "dx", {kTolerance, cols});
  twins.expect_near(dw, "dweight", {kTolerance, cols});
}

TEST_P(NormOnGpu, LayerNormAgreesWithTheHost) {
  const auto [name, rows, cols, residual] = shape();
  const kernels::LayerNorm n{rows, cols, 1e-5f, dtype()};
  Twins twins(device_bytes());
  const Buffer x = twins.noise(dtype(), elems(), 2.0, 0.5), w = twins.noise(dtype(), cols, 0.1, 1.0);
  const Buffer b = twins.noise(dtype(), cols, 0.1), y = twins.zeros(dtype(), elems());
  const Buffer dy = twins.noise(dtype(), elems()), dx = twins.noise(dtype(), elems());
  const Buffer mean = twins.zeros(Format::f32, rows), rstd = twins.zeros(Format::f32, rows);
  const Buffer dw = twins.noise(DType::f32, cols), db = twins.noise(DType::f32, cols);
  twins.run([&](Side& on) {
    kernels::layer_norm_forward(on.stream(), n, on.at(x), on.at(w), on.at(b), on.at(y), on.at<float>(mean),
                                on.at<float>(rstd));
  });
  twins.expect_near(y, "y", {kTolerance, cols});
  twins.expect_near(mean, "mean", {kTolerance, rows});
  // One column has no variance: 1 / sqrt(eps) on both sides.
  twins.expect_near(rstd, "rstd", {kTolerance, 1});
  twins.take_from_host(mean);
  twins.take_from_host(rstd);
  twins.run([&](Side& on) {
    kernels::layer_norm_backward(on.stream(), n, on.at(x), on.at(w), on.at<float>(mean), on.at<float>(rstd),
                                 on.at(dy), residual ? on.at(dx) : nullptr, on.at(dx), on.at<float>(dw),
                                 on.at<float>(db),
                                 on.scratch(kernels::norm_scratch_bytes(on.kind(), rows, cols)));
  });
  twins.expect_near(dx, "dx", {kTolerance, cols});
  twins.expect_near(dw, "dweight", {kTolerance, cols});
  twins.expect_near(db, "dbias", {kTolerance, cols});
}

INSTANTIATE_TEST_SUITE_P(Cuda, NormOnGpu,
                         testing::Combine(testing::Values(NormCase{"small", 37, 65, true},
                                                          NormCase{"small_packed", 40, 256, false},
                                                          NormCase{"narrow", 16384, 768, true},
                                                          NormCase{"square", 4096, 4096, true},
                                                          NormCase{"odd", 1023, 4097, false},
                                                          NormCase{"wide", 257, 16384, true}),
                                          both_dtypes()),
                         case_name<NormCase>);

}  // namespace
}  // namespace headrace::test
