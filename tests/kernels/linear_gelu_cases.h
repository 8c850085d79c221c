// SPDX-License-Identifier: Apache-2.0
// A linear layer with gelu after it, and the gradient through gelu, against doubles, whoever computes them.
#pragma once

#include <algorithm>
#include <cmath>

#include "tests/kernels/support.h"

namespace headrace::kernels {

/// Hendrycks & Gimpel 2016, the tanh form, and its derivative by central differences.
inline double gelu_reference(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
inline double gelu_slope_reference(double x) {
  return (gelu_reference(x + 1e-5) - gelu_reference(x - 1e-5)) / 2e-5;
}

/// Operands in host memory: forward makes z and y of x, W and bias; backward dz of dy, W and z.
struct LinearGelu {
  Linear l;
  bool bias;
  Tensor x, w, b, dy, z_given, z, y, dz;
};

/// Every result may be rounded twice: z before gelu, the product before it meets the slope.
inline void expect_linear_gelu(const LinearGelu& t) {
  const size_t rows = size_t(t.l.rows), in = size_t(t.l.in_features), out = size_t(t.l.out_features);
  const double step = t.l.dtype == DType::bf16 ? 0x1.01p-8 : 0.0;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < out; ++o) {
      double z = t.bias ? t.b[o] : 0.0;
      for (size_t i = 0; i < in; ++i) z += t.x[r * in + i] * t.w[o * in + i];
      const double y = gelu_reference(z), slope = std::fabs(gelu_slope_reference(z));
      ASSERT_NEAR(t.z[r * out + o], z, step * std::fabs(z) + 1e-4) << r << "," << o;
      ASSERT_NEAR(t.y[r * out + o], y, step * (std::fabs(y) + slope * std::fabs(z)) + 1e-4) << r << "," << o;
    }
    for (size_t i = 0; i < in; ++i) {
      double dx = 0.0;
      for (size_t o = 0; o < out; ++o) dx += t.dy[r * out + o] * t.w[o * in + i];
      const double want = dx * gelu_slope_reference(t.z_given[r * in + i]);
      ASSERT_NEAR(t.dz[r * in + i], want, 2 * step * std::fabs(want) + 1e-4) << r << "," << i;
    }
  }
}

/// `compute(LinearGelu&)` fills z, y and dz.
template <class Compute>
void check_linear_gelu(int64_t rows, int64_t in, int64_t out, DType dtype, bool bias, Compute&& compute) {
  SCOPED_TRACE(testing::Message() << rows << " rows, " << in << " to " << out << " " << dtype_name(dtype)
                                  << (bias ? " with bias" : ""));
  const size_t x_elems = size_t(rows * in), w_elems = size_t(in * out), y_elems = size_t(rows * out);
  LinearGelu t{.l = {.rows = rows, .in_features = in, .out_features = out, .dtype = dtype},
               .bias = bias,
               .x = random_tensor(dtype, x_elems, 1),
               .w = random_tensor(dtype, w_elems, 2, 0.5),
               .b = random_tensor(dtype, size_t(out), 3),
               .dy = random_tensor(dtype, y_elems, 4),
               .z_given = random_tensor(dtype, x_elems, 5, 1.5),
               .z = Tensor(dtype, y_elems),
               .y = Tensor(dtype, y_elems),
               .dz = Tensor(dtype, x_elems)};
  compute(t);
  expect_linear_gelu(t);
}

}  // namespace headrace::kernels
