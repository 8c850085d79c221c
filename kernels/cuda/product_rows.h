// SPDX-License-Identifier: Apache-2.0
// What a matrix product still needs where the library cannot do it in one go: a bias of another format than
// the result, a result of another format than the sum, a product of no terms. Used by gemm.cpp only.
#pragma once

#include "kernels/cuda/cuda_kernels.h"

namespace headrace::kernels::cuda {

/// c[i,j] = from[i,j] (0 without `from`) + bias[j] (0 without `bias`), rounded once. `from` may be c.
struct ProductRows {
  int64_t rows, cols;
  const float* from;
  int64_t from_stride;
  const void* bias;
  DType bias_dtype;
  void* c;
  int64_t c_stride;
  DType c_dtype;
};
void store_product_rows(cudaStream_t, const ProductRows&);

}  // namespace headrace::kernels::cuda
