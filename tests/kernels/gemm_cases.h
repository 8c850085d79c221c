// SPDX-License-Identifier: Apache-2.0
// Matrix products of every kind against double loops, whoever multiplies.
#pragma once

#include <array>

#include "tests/kernels/support.h"

namespace headrace::kernels {

struct Case {
  int64_t m, n, k;
  bool trans_a, trans_b, accumulate, bias;
  DType in, out;
};

/// Row lengths beyond the matrix, so that strides are used.
constexpr int64_t kSlack = 3;

inline Doubles reference(const Case& c, const Doubles& a, int64_t lda, const Doubles& b, int64_t ldb,
                         const Doubles& bias, const Doubles& before, int64_t ldc) {
  Doubles result = before;
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = (c.bias ? bias[size_t(j)] : 0.0) + (c.accumulate ? before[size_t(i * ldc + j)] : 0.0);
      for (int64_t p = 0; p < c.k; ++p) {
        sum += a[size_t(c.trans_a ? p * lda + i : i * lda + p)] *
               b[size_t(c.trans_b ? j * ldb + p : p * ldb + j)];
      }
      result[size_t(i * ldc + j)] = sum;
    }
  }
  return result;
}

/// A product with its operands in host memory.
struct GemmOperands {
  Gemm g;
  Tensor a, b, bias, out;
};

/// `multiply(GemmOperands&)` leaves the result in `out`.
template <class Multiply>
void check_gemm(const Case& c, Multiply&& multiply) {
  SCOPED_TRACE(testing::Message() << c.m << "x" << c.n << "x" << c.k << " trans " << c.trans_a << c.trans_b
                                  << " accumulate " << c.accumulate << " bias " << c.bias << " "
                                  << dtype_name(c.in) << " to " << dtype_name(c.out));
  const int64_t lda = (c.trans_a ? c.m : c.k) + kSlack, ldb = (c.trans_b ? c.k : c.n) + kSlack,
                ldc = c.n + kSlack;
  Tensor a = random_tensor(c.in, size_t((c.trans_a ? c.k : c.m) * lda), 1);
  Tensor b = random_tensor(c.in, size_t((c.trans_b ? c.n : c.k) * ldb), 2);
  Tensor bias = random_tensor(c.in, size_t(c.n), 3);
  Tensor out = random_tensor(c.out, size_t(c.m * ldc), 4);
  const Doubles want = reference(c, a.doubles(), lda, b.doubles(), ldb, bias.doubles(), out.doubles(), ldc);
  GemmOperands operands{.g = {.m = c.m,
                              .n = c.n,
                              .k = c.k,
                              .a = a.data(),
                              .lda = lda,
                              .trans_a = c.trans_a,
                              .b = b.data(),
                              .ldb = ldb,
                              .trans_b = c.trans_b,
                              .in = c.in,
                              .c = out.data(),
                              .ldc = ldc,
                              .out = c.out,
                              .accumulate = c.accumulate,
                              .bias = c.bias ? bias.data() : nullptr},
                        .a = std::move(a),
                        .b = std::move(b),
                        .bias = std::move(bias),
                        .out = std::move(out)};
  multiply(operands);
  expect_close(operands.out, want);
}

constexpr std::array<std::array<int64_t, 3>, 8> kGemmSizes = {
    {{1, 1, 1}, {5, 7, 1}, {1, 33, 19}, {17, 1, 64}, {31, 29, 23}, {64, 48, 32}, {3, 130, 65}, {2, 5, 300}}};

}  // namespace headrace::kernels
