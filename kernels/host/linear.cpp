// SPDX-License-Identifier: Apache-2.0
// The products of a linear layer, in terms of gemm, the bias gradient, and gelu as a pass of its own.
#include "kernels/host/host_kernels.h"
#include "kernels/host/isa.h"
#include "kernels/host/ranges.h"
#include "kernels/linear_products.h"

namespace headrace::kernels::host {
namespace {

/// sum[cols] += rows of x, in ascending order.
void add_rows(int64_t rows, int64_t cols, DType dtype, const void* x, float* sum) {
  const auto accumulate = isa_kernels().accumulate[size_t(dtype)];
  parallel_ranges(cols, kTurnColumns, [=](int64_t column, int64_t count) {
    for (int64_t row = 0; row < rows; ++row) {
      accumulate(count, element(x, row * cols + column, dtype), sum + column);
    }
  });
}

}  // namespace

void linear_forward(const Linear& l, const void* x, const void* weight, const void* bias, void* y,
                    Scratch scratch) {
  gemm(forward_product(l, x, weight, bias, y), scratch);
}

void linear_backward_input(const Linear& l, const void* dy, const void* weight, void* dx, Scratch scratch) {
  gemm(backward_input_product(l, dy, weight, dx), scratch);
}

void linear_backward_weight(const Linear& l, const void* dy, const void* x, float* dweight, float* dbias,
                            Scratch scratch) {
  gemm(backward_weight_product(l, dy, x, dweight), scratch);
  if (dbias) add_rows(l.rows, l.out_features, l.dtype, dy, dbias);
}

void linear_gelu_forward(const Linear& l, const void* x, const void* weight, const void* bias, void* z,
                         void* y, Scratch scratch) {
  linear_forward(l, x, weight, bias, z, scratch);
  gelu_forward(l.rows * l.out_features, l.dtype, z, y);
}

void linear_gelu_backward_input(const Linear& l, const void* dy, const void* weight, const void* z, void* dz,
                                Scratch scratch) {
  linear_backward_input(l, dy, weight, dz, scratch);
  gelu_backward(l.rows * l.in_features, l.dtype, z, dz, dz);
}

size_t linear_scratch_bytes(const Linear& l) {
  return std::max({gemm_scratch_bytes(forward_product(l, nullptr, nullptr, nullptr, nullptr)),
                   gemm_scratch_bytes(backward_input_product(l, nullptr, nullptr, nullptr)),
                   gemm_scratch_bytes(backward_weight_product(l, nullptr, nullptr, nullptr))});
}

}  // namespace headrace::kernels::host
