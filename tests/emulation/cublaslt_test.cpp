// SPDX-License-Identifier: Apache-2.0
// The emulated cuBLASLt against a plain loop over the layouts as its manual defines them.
#include <cublasLt.h>

#include <cmath>
#include <random>

#include "headrace/dtype.h"
#include "tests/emulation/self_test.h"

namespace headrace::emulation {
namespace {

/// A matrix in device memory, by element.
class Stored {
 public:
  Stored(cudaDataType type, cublasLtOrder_t order, uint64_t rows, uint64_t cols, uint64_t gap)
      : type_(type),
        order_(order),
        ld_((order == CUBLASLT_ORDER_COL ? rows : cols) + gap),
        bytes_(ld_ * (order == CUBLASLT_ORDER_COL ? cols : rows) * (type == CUDA_R_32F ? 4 : 2)) {
    cublasLtMatrixLayoutCreate(&layout, type, rows, cols, int64_t(ld_));
    const int32_t value = order;
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &value, sizeof(value));
  }
  ~Stored() { cublasLtMatrixLayoutDestroy(layout); }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;

  [[nodiscard]] void* data() const { return static_cast<unsigned char*>(bytes_); }
  [[nodiscard]] double get(uint64_t i, uint64_t j) const {
    return type_ == CUDA_R_32F ? double(static_cast<float*>(data())[at(i, j)])
                               : double(to_float(static_cast<bf16*>(data())[at(i, j)]));
  }
  void set(uint64_t i, uint64_t j, float value) {
    if (type_ == CUDA_R_32F) static_cast<float*>(data())[at(i, j)] = value;
    if (type_ == CUDA_R_16BF) static_cast<bf16*>(data())[at(i, j)] = to_bf16(value);
  }
  [[nodiscard]] uint64_t ld() const { return ld_; }
  cublasLtMatrixLayout_t layout = nullptr;

 private:
  [[nodiscard]] uint64_t at(uint64_t i, uint64_t j) const {
    return order_ == CUBLASLT_ORDER_COL ? j * ld_ + i : i * ld_ + j;
  }
  cudaDataType type_;
  cublasLtOrder_t order_;
  uint64_t ld_;
  DeviceArray<unsigned char> bytes_;
};

struct Case {
  cudaDataType in = CUDA_R_16BF, out = CUDA_R_16BF;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  bool trans_a = false, trans_b = false;
  float alpha = 1, beta = 0;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  uint64_t workspace_bytes = 0;
  size_t aux_shift = 0;  ///< bytes
};

double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

class CublasLt : public testing::Test {
 protected:
  CublasLt() { EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS); }
  ~CublasLt() override { cublasLtDestroy(handle); }

  static void fill(Stored& matrix, uint64_t rows, uint64_t cols, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (uint64_t i = 0; i < rows; ++i)
      for (uint64_t j = 0; j < cols; ++j) matrix.set(i, j, normal(generator));
  }

  /// The library's way: description, heuristic, product.
  cublasStatus_t multiply(const Case& c, const Stored& a, const Stored& b, const Stored& d,
                          const Stored& bias, void* workspace, const Stored* aux = nullptr) {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const int32_t trans_a = c.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                  trans_b = c.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans_a, sizeof(trans_a));
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &trans_b, sizeof(trans_b));
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &c.epilogue, sizeof(c.epilogue));
    const void* const bias_data = bias.data();
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_data, sizeof(bias_data));
    void* const aux_data = aux ? static_cast<unsigned char*>(aux->data()) + c.aux_shift : nullptr;
    const int64_t aux_ld = aux ? int64_t(aux->ld()) : 0;
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux_data,
                                   sizeof(aux_data));
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof(aux_ld));
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &c.workspace_bytes, sizeof(c.workspace_bytes));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, d.layout,
                                                           d.layout, preference, 1, &result, &found);
    if (status == CUBLAS_STATUS_SUCCESS) {
      EXPECT_EQ(found, 1);
      EXPECT_LE(result.workspaceSize, c.workspace_bytes);
      status =
          cublasLtMatmul(handle, desc, &c.alpha, a.data(), a.layout, b.data(), b.layout, &c.beta, d.data(),
                         d.layout, d.data(), d.layout, &result.algo, workspace, c.workspace_bytes, nullptr);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(desc);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    return status;
  }

  void check(const Case& c) {
    constexpr uint64_t kRows = 7, kCols = 5, kDepth = 9;
    Stored a(c.in, c.order, c.trans_a ? kDepth : kRows, c.trans_a ? kRows : kDepth, 3);
    Stored b(c.in, c.order, c.trans_b ? kCols : kDepth, c.trans_b ? kDepth : kCols, 1);
    Stored d(c.out, c.order, kRows, kCols, 2), before(c.out, c.order, kRows, kCols, 2);
    Stored bias(c.out, CUBLASLT_ORDER_COL, kRows, 1, 0), aux(c.out, CUBLASLT_ORDER_COL, kRows, kCols, 9);
    fill(a, c.trans_a ? kDepth : kRows, c.trans_a ? kRows : kDepth, 1);
    fill(b, c.trans_b ? kCols : kDepth, c.trans_b ? kDepth : kCols, 2);
    fill(bias, kRows, 1, 4);
    const bool gradient = c.epilogue == CUBLASLT_EPILOGUE_DGELU;
    if (gradient) fill(aux, kRows, kCols, 5);
    if (c.beta != 0) {  // otherwise it holds NaN, which must not be read
      fill(d, kRows, kCols, 3);
      fill(before, kRows, kCols, 3);
    }
    const DeviceArray<unsigned char> workspace(c.workspace_bytes + 1);
    ASSERT_EQ(multiply(c, a, b, d, bias, workspace, &aux), CUBLAS_STATUS_SUCCESS);
    for (uint64_t i = 0; i < kRows; ++i) {
      for (uint64_t j = 0; j < kCols; ++j) {
        double want = 0;
        for (uint64_t k = 0; k < kDepth; ++k)
          want += (c.trans_a ? a.get(k, i) : a.get(i, k)) * (c.trans_b ? b.get(j, k) : b.get(k, j));
        want *= c.alpha;
        if (c.beta != 0) want += c.beta * before.get(i, j);
        if (c.epilogue & CUBLASLT_EPILOGUE_BIAS) want += bias.get(i, 0);
        const double step = c.out == CUDA_R_16BF ? 0x1.01p-8 : 0.0;
        if (c.epilogue & 128 && !gradient) {
          EXPECT_NEAR(aux.get(i, j), want, 1e-5 + step * std::fabs(want));
        }
        if (c.epilogue & CUBLASLT_EPILOGUE_GELU) want = gelu(want);
        if (gradient) want *= (gelu(aux.get(i, j) + 1e-5) - gelu(aux.get(i, j) - 1e-5)) / 2e-5;
        const double tolerance = 1e-5 + step * std::fabs(want);
        EXPECT_NEAR(d.get(i, j), want, tolerance) << i << "," << j;
      }
    }
  }

  cublasLtHandle_t handle = nullptr;
};

TEST_F(CublasLt, HonoursTransposesAndOrders) {
  for (const auto order : {CUBLASLT_ORDER_COL, CUBLASLT_ORDER_ROW})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true})
        check({.order = order, .trans_a = trans_a, .trans_b = trans_b});
}

TEST_F(CublasLt, HonoursFormatsAndFactors) {
  check({.in = CUDA_R_32F, .out = CUDA_R_32F, .alpha = 0.5f, .beta = -2.0f});
  check({.in = CUDA_R_16BF, .out = CUDA_R_32F, .beta = 1.0f});
  check({.in = CUDA_R_16BF, .out = CUDA_R_16BF, .alpha = 3.0f});
}

TEST_F(CublasLt, HonoursEpilogues) {
  check({.epilogue = CUBLASLT_EPILOGUE_BIAS});
  check({.in = CUDA_R_32F, .out = CUDA_R_32F, .epilogue = CUBLASLT_EPILOGUE_GELU});
  check({.out = CUDA_R_32F, .trans_a = true, .epilogue = CUBLASLT_EPILOGUE_GELU_BIAS});
}

TEST_F(CublasLt, KeepsWhatGeluWasGivenAndTakesItBack) {
  check({.epilogue = CUBLASLT_EPILOGUE_GELU_AUX});
  check({.trans_b = true, .epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
  check({.trans_a = true, .epilogue = CUBLASLT_EPILOGUE_DGELU});
}

TEST_F(CublasLt, WhatGeluWasGivenIsAlignedAndHasWholeVectorsForRows) {
  Stored a(CUDA_R_16BF, CUBLASLT_ORDER_COL, 8, 8, 0), ragged(CUDA_R_16BF, CUBLASLT_ORDER_COL, 8, 8, 4);
  const Case c{.epilogue = CUBLASLT_EPILOGUE_GELU_AUX};
  EXPECT_EQ(multiply(c, a, a, a, a, nullptr, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(c, a, a, a, a, nullptr, &ragged), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply({.epilogue = CUBLASLT_EPILOGUE_GELU_AUX, .aux_shift = 8}, a, a, a, a, nullptr, &a),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLt, SpoilsTheWorkspaceItAskedFor) {
  Stored a(CUDA_R_32F, CUBLASLT_ORDER_COL, 4, 4, 0), b(CUDA_R_32F, CUBLASLT_ORDER_COL, 4, 4, 0),
      d(CUDA_R_32F, CUBLASLT_ORDER_COL, 4, 4, 0);
  fill(a, 4, 4, 1);
  fill(b, 4, 4, 2);
  const DeviceArray<float> workspace(std::vector<float>(64, 1.0f));
  ASSERT_EQ(multiply({.in = CUDA_R_32F, .out = CUDA_R_32F, .workspace_bytes = 100}, a, b, d, a, workspace),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_TRUE(std::isnan(workspace[24]));
  EXPECT_EQ(workspace[25], 1.0f);
}

TEST_F(CublasLt, RefusesWhatTheLibraryRefuses) {
  Stored a(CUDA_R_32F, CUBLASLT_ORDER_COL, 4, 4, 0), half(CUDA_R_16BF, CUBLASLT_ORDER_COL, 4, 4, 0),
      wide(CUDA_R_32F, CUBLASLT_ORDER_COL, 4, 5, 0);
  EXPECT_EQ(multiply({}, a, half, a, a, nullptr), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply({}, a, a, half, a, nullptr), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply({}, a, a, wide, a, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  const DeviceArray<unsigned char> workspace(1024);
  EXPECT_EQ(multiply({.workspace_bytes = 512}, a, a, a, a, workspace + 16), CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace headrace::emulation
