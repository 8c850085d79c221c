// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/matmul.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "headrace/dtype.h"
#include "tests/emulation/stream.h"

namespace headrace::emulation {
namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;

bool has_bias(uint32_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

bool has_aux(uint32_t epilogue) {
  return (epilogue & 128) != 0;
}

/// What the library asks of the matrix beside D, which it writes or reads in whole vectors.
constexpr int64_t kAuxRows = 8;
constexpr uintptr_t kAuxAlignment = 16;

size_t offset_of(const Layout& layout, size_t row, size_t col) {
  const size_t ld = size_t(layout.ld);
  return layout.order == CUBLASLT_ORDER_COL ? col * ld + row : row * ld + col;
}

float load(const void* data, uint32_t type, size_t offset) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[offset];
  return to_float(static_cast<const bf16*>(data)[offset]);
}

void store(void* data, uint32_t type, size_t offset, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[offset] = value;
  } else {
    static_cast<bf16*>(data)[offset] = to_bf16(value);
  }
}

/// op(matrix), row by row.
std::vector<float> operand(const Matrix& matrix, bool transposed) {
  const Layout& layout = matrix.layout;
  const size_t rows = transposed ? layout.cols : layout.rows, cols = transposed ? layout.rows : layout.cols;
  std::vector<float> values(rows * cols);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < cols; ++j)
      values[i * cols + j] =
          load(matrix.data, layout.type, transposed ? offset_of(layout, j, i) : offset_of(layout, i, j));
  return values;
}

/// y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
float gelu(float x) {
  return 0.5f * x * (1.0f + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

float gelu_slope(float x) {
  const float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.7978845608f * (1.0f + 3 * 0.044715f * x * x);
}

/// From op(A) op(B) and C to D at row i of column j.
void finish(const Product& p, size_t i, size_t j, float value) {
  const uint32_t epilogue = p.desc.epilogue, type = p.d_layout.type;
  const uint32_t bias_type = p.desc.bias_type < 0 ? type : uint32_t(p.desc.bias_type);
  const size_t aux_at = j * size_t(p.desc.aux_ld) + i;
  if (has_bias(epilogue)) value += load(p.desc.bias, bias_type, i);
  if (epilogue == CUBLASLT_EPILOGUE_DGELU) {
    value *= gelu_slope(load(p.desc.aux, type, aux_at));
  } else if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
    if (has_aux(epilogue)) store(p.desc.aux, type, aux_at, value);
    value = gelu(value);
  }
  store(p.d, type, offset_of(p.d_layout, i, j), value);
}

void compute(const Product& p) {
  if (p.workspace_bytes > 0) std::memset(p.workspace, 0xff, p.workspace_bytes);
  const bool trans_a = p.desc.trans_a == CUBLAS_OP_T;
  const std::vector<float> a = operand(p.a, trans_a), b = operand(p.b, p.desc.trans_b == CUBLAS_OP_T);
  const size_t rows = p.d_layout.rows, cols = p.d_layout.cols;
  const size_t depth = trans_a ? p.a.layout.rows : p.a.layout.cols;
  std::vector<float> sums(cols);
  for (size_t i = 0; i < rows; ++i) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (size_t k = 0; k < depth; ++k) {
      const float factor = a[i * depth + k];
      const float* const row = &b[k * cols];
      for (size_t j = 0; j < cols; ++j) sums[j] += factor * row[j];
    }
    for (size_t j = 0; j < cols; ++j) {
      float value = p.alpha * sums[j];
      // With beta zero C is not read: it may hold anything.
      if (p.beta != 0.0f) value += p.beta * load(p.c.data, p.c.layout.type, offset_of(p.c.layout, i, j));
      finish(p, i, j, value);
    }
  }
}

bool is_sound(const Layout& layout) {
  const uint64_t least = layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.cols;
  return layout.rows > 0 && layout.cols > 0 && layout.ld >= int64_t(least) &&
         (layout.order == CUBLASLT_ORDER_COL || layout.order == CUBLASLT_ORDER_ROW);
}

bool knows(uint32_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
      return true;
    default:
      return false;
  }
}

cublasStatus_t check_epilogue(const cublasLtMatmulDescOpaque_t& desc, const Layout& d) {
  if (!knows(desc.epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((has_bias(desc.epilogue) || has_aux(desc.epilogue)) && d.order != CUBLASLT_ORDER_COL)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has_bias(desc.epilogue)) {
    if (!desc.bias) return CUBLAS_STATUS_INVALID_VALUE;
    if (desc.bias_type >= 0 && uint32_t(desc.bias_type) != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (has_aux(desc.epilogue)) {
    if (!desc.aux || reinterpret_cast<uintptr_t>(desc.aux) % kAuxAlignment != 0 ||
        desc.aux_ld < int64_t(d.rows) || desc.aux_ld % kAuxRows != 0)
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t check_product(const cublasLtMatmulDescOpaque_t& desc, const Layout& a, const Layout& b,
                             const Layout& c, const Layout& d) {
  for (const Layout* layout : {&a, &b, &c, &d})
    if (!is_sound(*layout)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool trans_a = desc.trans_a == CUBLAS_OP_T, trans_b = desc.trans_b == CUBLAS_OP_T;
  const uint64_t rows = trans_a ? a.cols : a.rows, depth = trans_a ? a.rows : a.cols;
  const uint64_t cols = trans_b ? b.rows : b.cols, b_depth = trans_b ? b.cols : b.rows;
  if (depth != b_depth || d.rows != rows || d.cols != cols || c.rows != rows || c.cols != cols)
    return CUBLAS_STATUS_INVALID_VALUE;

  if (a.type != b.type || c.type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (a.type == CUDA_R_32F && d.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return check_epilogue(desc, d);
}

cublasStatus_t enqueue_product(const Product& product, cudaStream_t stream) {
  stream_or_default(stream).enqueue_work([product] { compute(product); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace headrace::emulation
