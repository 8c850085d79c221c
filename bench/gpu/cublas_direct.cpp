// SPDX-License-Identifier: Apache-2.0
#include "cublas_direct.h"

#include <string>

#include "headrace/error.h"
#include "kernels/cuda/check.h"

namespace headrace::bench {
namespace {

constexpr size_t kWorkspaceBytes = size_t(64) << 20;

void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError(std::string(what) + ": cuBLASLt status " + std::to_string(int(status)));
}

cudaDataType_t cuda_type(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

/// A row-major matrix is the column-major one of its transpose.
cublasLtMatrixLayout_t layout(DType dtype, int64_t rows, int64_t cols, int64_t row_stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&made, cuda_type(dtype), uint64_t(cols), uint64_t(rows), row_stride),
             "a matrix");
  return made;
}

}  // namespace

// C^T = op(B)^T op(A)^T: cuBLAS's first operand is B.
CublasDirect::CublasDirect(const kernels::Gemm& g) : product_(g) {
  check_blas(cublasLtCreate(&handle_), "cuBLASLt");
  check_blas(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
  const cublasOperation_t op_b = g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_a = g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  check_blas(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof op_b),
             "B");
  check_blas(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof op_a),
             "A");
  b_ = g.trans_b ? layout(g.in, g.n, g.k, g.ldb) : layout(g.in, g.k, g.n, g.ldb);
  a_ = g.trans_a ? layout(g.in, g.k, g.m, g.lda) : layout(g.in, g.m, g.k, g.lda);
  c_ = layout(g.out, g.m, g.n, g.ldc);
  cuda::check(cudaMalloc(&workspace_, kWorkspaceBytes), "workspace of a benchmark");

  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&preference), "a preference");
  check_blas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &kWorkspaceBytes, sizeof kWorkspaceBytes),
             "a preference");
  constexpr int kMost = 8;
  found_.resize(kMost);
  int count = 0;
  check_blas(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, b_, a_, c_, c_, preference, kMost,
                                            found_.data(), &count),
             "the heuristic");
  found_.resize(size_t(count));
  std::erase_if(found_, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  if (found_.empty()) throw DeviceError("cuBLASLt has no algorithm for a product of the benchmark");
  cublasLtMatmulPreferenceDestroy(preference);
}

CublasDirect::~CublasDirect() {
  cudaFree(workspace_);
  for (cublasLtMatrixLayout_t made : {a_, b_, c_}) cublasLtMatrixLayoutDestroy(made);
  cublasLtMatmulDescDestroy(operation_);
  cublasLtDestroy(handle_);
}

void CublasDirect::run(cudaStream_t stream, size_t algorithm) const {
  const float one = 1.0f, beta = product_.accumulate ? 1.0f : 0.0f;
  check_blas(cublasLtMatmul(handle_, operation_, &one, product_.b, b_, product_.a, a_, &beta, product_.c, c_,
                            product_.c, c_, &found_[algorithm].algo, workspace_, kWorkspaceBytes, stream),
             "a product");
}

}  // namespace headrace::bench
