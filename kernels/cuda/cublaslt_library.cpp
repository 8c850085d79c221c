// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, loaded at the first matrix product on a GPU. Linked in the usual way it would cost every run 200
// MB of resident memory and a fifth of a second, those on the host device as well. This file has the
// functions of <cublasLt.h> that headrace calls, each handing its arguments on to the library's own.
// Thread-safe.
#include <cublasLt.h>
#include <dlfcn.h>

#include <string>

#include "headrace/error.h"

#define HEADRACE_TEXT_OF(x) #x
#define HEADRACE_TEXT(x) HEADRACE_TEXT_OF(x)

namespace headrace::kernels::cuda {
namespace {

constexpr const char* kName = "libcublasLt.so." HEADRACE_TEXT(CUBLAS_VER_MAJOR);

/// By name, as the loader finds it, else where it was when this was built. Stays until the process ends.
void* open_library() {
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  const std::string reason = library ? "" : dlerror();
  if (!library) library = dlopen(HEADRACE_CUBLASLT_PATH, RTLD_NOW | RTLD_LOCAL);
  if (library) return library;
  throw DeviceError("cuBLASLt, which multiplies matrices on a GPU, cannot be loaded (" + reason +
                    "): install cuBLAS " HEADRACE_TEXT(CUBLAS_VER_MAJOR) ", put its folder into "
                    "LD_LIBRARY_PATH, or set device.kind = \"host\"");
}

template <class Function>
Function* find(const char* name) {
  static void* const library = open_library();
  if (void* const found = dlsym(library, name)) return reinterpret_cast<Function*>(found);
  throw DeviceError(std::string(kName) + " has no " + name +
                    ": it is not the library that this program was built for");
}

}  // namespace
}  // namespace headrace::kernels::cuda

// The pointer is found once for each function, at its first call.
#define HEADRACE_HAND_ON(function, ...)                                                  \
  static auto* const own = headrace::kernels::cuda::find<decltype(function)>(#function); \
  return own(__VA_ARGS__)

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  HEADRACE_HAND_ON(cublasLtCreate, handle);
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  HEADRACE_HAND_ON(cublasLtGetStatusName, status);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  HEADRACE_HAND_ON(cublasLtGetStatusString, status);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  HEADRACE_HAND_ON(cublasLtMatmulDescCreate, description, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  HEADRACE_HAND_ON(cublasLtMatmulDescDestroy, description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t name, const void* value,
                                              size_t bytes) {
  HEADRACE_HAND_ON(cublasLtMatmulDescSetAttribute, description, name, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t stride) {
  HEADRACE_HAND_ON(cublasLtMatrixLayoutCreate, layout, type, rows, cols, stride);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  HEADRACE_HAND_ON(cublasLtMatrixLayoutDestroy, layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  HEADRACE_HAND_ON(cublasLtMatmulPreferenceCreate, preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  HEADRACE_HAND_ON(cublasLtMatmulPreferenceDestroy, preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t bytes) {
  HEADRACE_HAND_ON(cublasLtMatmulPreferenceSetAttribute, preference, name, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  HEADRACE_HAND_ON(cublasLtMatmulAlgoGetHeuristic, handle, description, a, b, c, d, preference, wanted,
                   results, found);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  HEADRACE_HAND_ON(cublasLtMatmul, handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d,
                   d_layout, algorithm, workspace, workspace_bytes, stream);
}
