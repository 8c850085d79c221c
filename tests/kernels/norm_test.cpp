// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include "tests/kernels/support.h"

namespace headrace::kernels {
namespace {

constexpr double kEps = 1e-5;

struct Sizes {
  size_t rows, cols;
};
constexpr Sizes kSizes[] = {{1, 1}, {2, 3}, {5, 16}, {3, 37}, {19, 33}, {2, 130}};

Doubles rms_reference(const Doubles& x, const Doubles& w, size_t cols) {
  Doubles y(x.size());
  for (size_t row = 0; row < x.size() / cols; ++row) {
    double squares = 0;
    for (size_t i = 0; i < cols; ++i) squares += x[row * cols + i] * x[row * cols + i];
    const double rstd = 1 / std::sqrt(squares / double(cols) + kEps);
    for (size_t i = 0; i < cols; ++i) y[row * cols + i] = x[row * cols + i] * rstd * w[i];
  }
  return y;
}

Doubles layer_reference(const Doubles& x, const Doubles& w, const Doubles& b, size_t cols) {
  Doubles y(x.size());
  for (size_t row = 0; row < x.size() / cols; ++row) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < cols; ++i) mean += x[row * cols + i] / double(cols);
    for (size_t i = 0; i < cols; ++i) variance += (x[row * cols + i] - mean) * (x[row * cols + i] - mean);
    const double rstd = 1 / std::sqrt(variance / double(cols) + kEps);
    for (size_t i = 0; i < cols; ++i) y[row * cols + i] = (x[row * cols + i] - mean) * rstd * w[i] + b[i];
  }
  return y;
}

Doubles plus(Doubles a, const Doubles& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

TEST(RmsNorm, MatchesDoubleAndItsFiniteDifferences) {
  InlineStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto [rows, cols] : kSizes) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << rows << "x" << cols);
      const RmsNorm n{int64_t(rows), int64_t(cols), float(kEps), dtype};
      Tensor x = random_tensor(dtype, rows * cols, 1), w = random_tensor(dtype, cols, 2);
      Tensor dy = random_tensor(dtype, rows * cols, 3), residual = random_tensor(dtype, rows * cols, 4);
      Tensor y(dtype, rows * cols), rstd(DType::f32, rows), dw = random_tensor(DType::f32, cols, 5);
      const Doubles xd = x.doubles(), wd = w.doubles(), dyd = dy.doubles();
      const Doubles want_dx =
          plus(numeric_gradient([&](const Doubles& v) { return dot(rms_reference(v, wd, cols), dyd); }, xd),
               residual.doubles());
      const Doubles want_dw =
          plus(numeric_gradient([&](const Doubles& v) { return dot(rms_reference(xd, v, cols), dyd); }, wd),
               dw.doubles());
      ScratchMemory scratch(norm_scratch_bytes(DeviceKind::host, n.rows, n.cols));
      rms_norm_forward(stream, n, x.data(), w.data(), y.data(), rstd.floats());
      expect_close(y, rms_reference(xd, wd, cols));
      Tensor& dx = residual;  // in place
      rms_norm_backward(stream, n, x.data(), w.data(), rstd.floats(), dy.data(), residual.data(), dx.data(),
                        dw.floats(), scratch);
      expect_close(dx, want_dx);
      expect_close(dw, want_dw);
    }
  }
}

TEST(LayerNorm, MatchesDoubleAndItsFiniteDifferences) {
  InlineStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto [rows, cols] : kSizes) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << rows << "x" << cols);
      const LayerNorm n{int64_t(rows), int64_t(cols), float(kEps), dtype};
      Tensor x = random_tensor(dtype, rows * cols, 1), w = random_tensor(dtype, cols, 2);
      Tensor b = random_tensor(dtype, cols, 6), dy = random_tensor(dtype, rows * cols, 3);
      Tensor y(dtype, rows * cols), mean(DType::f32, rows), rstd(DType::f32, rows), dx(dtype, rows * cols);
      Tensor dw = random_tensor(DType::f32, cols, 5), db = random_tensor(DType::f32, cols, 7);
      const Doubles xd = x.doubles(), wd = w.doubles(), bd = b.doubles(), dyd = dy.doubles();
      const auto loss = [&](const Doubles& x_, const Doubles& w_, const Doubles& b_) {
        return dot(layer_reference(x_, w_, b_, cols), dyd);
      };
      const Doubles want_dx = numeric_gradient([&](const Doubles& v) { return loss(v, wd, bd); }, xd);
      const Doubles want_dw =
          plus(numeric_gradient([&](const Doubles& v) { return loss(xd, v, bd); }, wd), dw.doubles());
      const Doubles want_db =
          plus(numeric_gradient([&](const Doubles& v) { return loss(xd, wd, v); }, bd), db.doubles());
      ScratchMemory scratch(norm_scratch_bytes(DeviceKind::host, n.rows, n.cols));
      layer_norm_forward(stream, n, x.data(), w.data(), b.data(), y.data(), mean.floats(), rstd.floats());
      expect_close(y, layer_reference(xd, wd, bd, cols));
      layer_norm_backward(stream, n, x.data(), w.data(), mean.floats(), rstd.floats(), dy.data(), nullptr,
                          dx.data(), dw.floats(), db.floats(), scratch);
      expect_close(dx, want_dx);
      expect_close(dw, want_dw);
      expect_close(db, want_db);
    }
  }
}

}  // namespace
}  // namespace headrace::kernels
