// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's objects with owners, and its statuses as errors that name the product. Used by gemm.cpp only.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <string>
#include <type_traits>

#include "headrace/error.h"
#include "kernels/gemm.h"

namespace headrace::kernels::cuda {

inline std::string text_of(const Gemm& g) {
  return "matrix product of " + std::to_string(g.m) + " x " + std::to_string(g.n) + " x " +
         std::to_string(g.k) + " (m, n, k), " + dtype_name(g.in) + " to " + dtype_name(g.out);
}

inline void check(cublasStatus_t status, const Gemm& g, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(text_of(g) + ": cuBLASLt's " + call + " failed: " + cublasLtGetStatusString(status) +
                    " (" + cublasLtGetStatusName(status) + ")");
}

template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroy {
  using pointer = Handle;
  void operator()(Handle handle) const { (void)destroy(handle); }
};
template <class Handle, cublasStatus_t (*destroy)(Handle)>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;
using Description = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

inline cudaDataType_t type_of(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

inline Layout layout(const Gemm& g, DType dtype, int64_t rows, int64_t cols, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, type_of(dtype), uint64_t(rows), uint64_t(cols), stride), g,
        "MatrixLayoutCreate");
  return Layout(made);
}

template <class Value>
void set(const Gemm& g, const Description& description, cublasLtMatmulDescAttributes_t name,
         const Value& value) {
  check(cublasLtMatmulDescSetAttribute(description.get(), name, &value, sizeof(value)), g,
        "MatmulDescSetAttribute");
}

template <class Value>
void set(const Gemm& g, const Preference& preference, cublasLtMatmulPreferenceAttributes_t name,
         const Value& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), name, &value, sizeof(value)), g,
        "MatmulPreferenceSetAttribute");
}

}  // namespace headrace::kernels::cuda
