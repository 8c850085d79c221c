// SPDX-License-Identifier: Apache-2.0
// The product that kernels::gemm computes, asked of cuBLASLt the way its documentation shows: descriptors
// once, a heuristic's algorithms, 64 MiB of workspace. What gpu_bench compares with.
#pragma once

#include <cublasLt.h>

#include <vector>

#include "kernels/gemm.h"

namespace headrace::bench {

/// Without bias. Owns its descriptors and workspace; not for several threads.
class CublasDirect {
 public:
  explicit CublasDirect(const kernels::Gemm& product);
  ~CublasDirect();
  CublasDirect(const CublasDirect&) = delete;
  CublasDirect& operator=(const CublasDirect&) = delete;

  /// Algorithms that the heuristic offers, the one it would take first.
  [[nodiscard]] size_t algorithms() const { return found_.size(); }
  void run(cudaStream_t stream, size_t algorithm = 0) const;

 private:
  kernels::Gemm product_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  void* workspace_ = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> found_;
};

}  // namespace headrace::bench
