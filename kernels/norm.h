// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm over the last dimension, forward and backward. Statistics and sums are fp32; the sums
// over rows (dweight, dbias) are made in fixed groups of rows, so that thread counts do not change them.
#pragma once

#include "kernels/gemm.h"

namespace headrace::kernels {

/// Zhang & Sennrich 2019. y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). x, y [rows, cols]; weight
/// [cols].
struct RmsNorm {
  int64_t rows, cols;
  float eps;
  DType dtype;
};
void rms_norm_forward(Stream&, const RmsNorm&, const void* x, const void* weight, void* y, float* rstd);
/// dx = d(y)/d(x) dy (+ residual_dx when given, which may be dx itself); dweight[cols] += in fp32.
void rms_norm_backward(Stream&, const RmsNorm&, const void* x, const void* weight, const float* rstd,
                       const void* dy, const void* residual_dx, void* dx, float* dweight, Scratch);

/// Ba et al. 2016. y = (x - mean) * rstd * weight + bias, variance without Bessel's correction.
struct LayerNorm {
  int64_t rows, cols;
  float eps;
  DType dtype;
};
void layer_norm_forward(Stream&, const LayerNorm&, const void* x, const void* weight, const void* bias,
                        void* y, float* mean, float* rstd);
void layer_norm_backward(Stream&, const LayerNorm&, const void* x, const void* weight, const float* mean,
                         const float* rstd, const void* dy, const void* residual_dx, void* dx, float* dweight,
                         float* dbias, Scratch);
size_t norm_scratch_bytes(DeviceKind kind, int64_t rows, int64_t cols);  ///< for either backward

}  // namespace headrace::kernels
