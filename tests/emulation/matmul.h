// SPDX-License-Identifier: Apache-2.0
// A matrix product as the emulated cuBLASLt is asked for it, and its computation. Used by cublaslt.cpp.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

struct cublasLtMatmulDescOpaque_t {
  int32_t trans_a = CUBLAS_OP_N;
  int32_t trans_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int32_t bias_type = -1;  ///< as D when not said
  void* aux = nullptr;     ///< what GELU was or is to be given, in D's format
  int64_t aux_ld = 0;
};

struct cublasLtMatrixLayoutOpaque_t {
  uint32_t type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0;
  uint64_t cols = 0;
  int64_t ld = 0;
};

namespace headrace::emulation {

struct Matrix {
  const void* data;
  cublasLtMatrixLayoutOpaque_t layout;
};

struct Product {
  cublasLtMatmulDescOpaque_t desc;
  float alpha, beta;
  Matrix a, b, c;
  void* d;
  cublasLtMatrixLayoutOpaque_t d_layout;
  void* workspace;
  size_t workspace_bytes;
};

/// INVALID_VALUE for shapes that do not fit, NOT_SUPPORTED for formats that the library does not combine.
cublasStatus_t check_product(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
                             const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
                             const cublasLtMatrixLayoutOpaque_t& d);

/// Of a product that was checked.
cublasStatus_t enqueue_product(const Product& product, cudaStream_t stream);

}  // namespace headrace::emulation
