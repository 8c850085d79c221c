// SPDX-License-Identifier: Apache-2.0
// The three products of a linear layer (kernels/gemm.h) as Gemm, for every device.
#pragma once

#include "kernels/gemm.h"

namespace headrace::kernels {

inline Gemm forward_product(const Linear& l, const void* x, const void* weight, const void* bias, void* y) {
  return {.m = l.rows,
          .n = l.out_features,
          .k = l.in_features,
          .a = x,
          .lda = l.in_features,
          .trans_a = false,
          .b = weight,
          .ldb = l.in_features,
          .trans_b = true,
          .in = l.dtype,
          .c = y,
          .ldc = l.out_features,
          .out = l.dtype,
          .accumulate = false,
          .bias = bias};
}

inline Gemm backward_input_product(const Linear& l, const void* dy, const void* weight, void* dx) {
  return {.m = l.rows,
          .n = l.in_features,
          .k = l.out_features,
          .a = dy,
          .lda = l.out_features,
          .trans_a = false,
          .b = weight,
          .ldb = l.in_features,
          .trans_b = false,
          .in = l.dtype,
          .c = dx,
          .ldc = l.in_features,
          .out = l.dtype,
          .accumulate = false,
          .bias = nullptr};
}

inline Gemm backward_weight_product(const Linear& l, const void* dy, const void* x, float* dweight) {
  return {.m = l.out_features,
          .n = l.in_features,
          .k = l.rows,
          .a = dy,
          .lda = l.out_features,
          .trans_a = true,
          .b = x,
          .ldb = l.in_features,
          .trans_b = false,
          .in = l.dtype,
          .c = dweight,
          .ldc = l.in_features,
          .out = DType::f32,
          .accumulate = true,
          .bias = nullptr};
}

}  // namespace headrace::kernels
