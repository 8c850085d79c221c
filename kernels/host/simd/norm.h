// SPDX-License-Identifier: Apache-2.0
// Rows of RMSNorm and LayerNorm (see vec.h for how this is compiled).
#pragma once

#include "kernels/host/simd/vec.h"

namespace headrace::kernels::host::HEADRACE_ISA {

HEADRACE_INLINE float reciprocal_root(float x) {
  return 1.0f / __builtin_sqrtf(x);
}

template <class T>
void rms_norm_forward(const NormRows& a) {
  const T* weight = static_cast<const T*>(a.weight);
  for (int64_t row = 0; row < a.rows; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * a.cols;
    T* y = static_cast<T*>(a.y) + row * a.cols;
    const float squares = sum_over(a.cols, [&](int64_t i, auto lanes) {
      const Vec v = load(x + i, lanes);
      return v * v;
    });
    const float rstd = reciprocal_root(squares / float(a.cols) + a.eps);
    a.rstd[row] = rstd;
    for_vectors(a.cols, [&](int64_t i, auto lanes) {
      store(y + i, load(x + i, lanes) * rstd * load(weight + i, lanes), lanes);
    });
  }
}

template <class T>
void layer_norm_forward(const NormRows& a) {
  const T* weight = static_cast<const T*>(a.weight);
  const T* bias = static_cast<const T*>(a.bias);
  for (int64_t row = 0; row < a.rows; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * a.cols;
    T* y = static_cast<T*>(a.y) + row * a.cols;
    const float mean =
        sum_over(a.cols, [&](int64_t i, auto lanes) { return load(x + i, lanes); }) / float(a.cols);
    const float squares = sum_over(a.cols, [&](int64_t i, auto lanes) {
      const Vec d = keep(load(x + i, lanes) - mean, Vec{}, lanes);
      return d * d;
    });
    const float rstd = reciprocal_root(squares / float(a.cols) + a.eps);
    a.mean[row] = mean;
    a.rstd[row] = rstd;
    for_vectors(a.cols, [&](int64_t i, auto lanes) {
      const Vec normal = (load(x + i, lanes) - mean) * rstd;
      store(y + i, normal * load(weight + i, lanes) + load(bias + i, lanes), lanes);
    });
  }
}

template <class T, class Lanes>
HEADRACE_INLINE Vec residual_at(const void* residual, int64_t i, Lanes lanes) {
  return residual ? load(static_cast<const T*>(residual) + i, lanes) : Vec{};
}

HEADRACE_INLINE void set_zero(float* p, int64_t n) {
  for_vectors(n, [&](int64_t i, auto lanes) { store(p + i, Vec{}, lanes); });
}

/// g = dy weight, n = x rstd:  dx = rstd (g - n mean(g n)), dweight = sum of dy n.
template <class T>
void rms_norm_backward(const NormBackwardRows& a) {
  const T* weight = static_cast<const T*>(a.weight);
  set_zero(a.dweight, a.cols);
  for (int64_t row = 0; row < a.rows; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * a.cols;
    const T* dy = static_cast<const T*>(a.dy) + row * a.cols;
    const T* residual = a.residual_dx ? static_cast<const T*>(a.residual_dx) + row * a.cols : nullptr;
    T* dx = static_cast<T*>(a.dx) + row * a.cols;
    const float rstd = a.rstd[row];
    const float along =
        sum_over(a.cols,
                 [&](int64_t i, auto lanes) {
                   return load(dy + i, lanes) * load(weight + i, lanes) * (load(x + i, lanes) * rstd);
                 }) /
        float(a.cols);
    for_vectors(a.cols, [&](int64_t i, auto lanes) {
      const Vec normal = load(x + i, lanes) * rstd;
      const Vec d = load(dy + i, lanes);
      const Vec dnormal = d * load(weight + i, lanes);
      store(a.dweight + i, load(a.dweight + i, lanes) + d * normal, lanes);
      store(dx + i, rstd * (dnormal - normal * along) + residual_at<T>(residual, i, lanes), lanes);
    });
  }
}

/// g = dy weight, n = (x - mean) rstd:  dx = rstd (g - mean(g) - n mean(g n)), dweight = sum of dy n, dbias
/// of dy.
template <class T>
void layer_norm_backward(const NormBackwardRows& a) {
  const T* weight = static_cast<const T*>(a.weight);
  set_zero(a.dweight, a.cols);
  set_zero(a.dbias, a.cols);
  for (int64_t row = 0; row < a.rows; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * a.cols;
    const T* dy = static_cast<const T*>(a.dy) + row * a.cols;
    const T* residual = a.residual_dx ? static_cast<const T*>(a.residual_dx) + row * a.cols : nullptr;
    T* dx = static_cast<T*>(a.dx) + row * a.cols;
    const float mean = a.mean[row];
    const float rstd = a.rstd[row];
    Vec sum_g{}, sum_gn{};
    for_vectors(a.cols, [&](int64_t i, auto lanes) {
      const Vec g = load(dy + i, lanes) * load(weight + i, lanes);  // 0 beyond the end
      sum_g += g;
      sum_gn += g * ((load(x + i, lanes) - mean) * rstd);
    });
    const float level = horizontal_sum(sum_g) / float(a.cols);
    const float along = horizontal_sum(sum_gn) / float(a.cols);
    for_vectors(a.cols, [&](int64_t i, auto lanes) {
      const Vec normal = (load(x + i, lanes) - mean) * rstd;
      const Vec d = load(dy + i, lanes);
      const Vec g = d * load(weight + i, lanes);
      store(a.dweight + i, load(a.dweight + i, lanes) + d * normal, lanes);
      store(a.dbias + i, load(a.dbias + i, lanes) + d, lanes);
      store(dx + i, rstd * (g - level - normal * along) + residual_at<T>(residual, i, lanes), lanes);
    });
  }
}

}  // namespace headrace::kernels::host::HEADRACE_ISA
