// SPDX-License-Identifier: Apache-2.0
// Loss and gradient of one row of logits (see vec.h for how this is compiled).
#pragma once

#include "kernels/host/simd/vec.h"

namespace headrace::kernels::host::HEADRACE_ISA {

template <class T>
double cross_entropy_row(int64_t vocab, float grad_scale, const float* logits, int32_t label, void* dlogits) {
  T* grad = static_cast<T*>(dlogits);
  if (label < 0) {
    if (grad) for_vectors(vocab, [&](int64_t i, auto lanes) { store(grad + i, Vec{}, lanes); });
    return 0.0;
  }
  const float at_label = logits[label];  // before dlogits may overwrite it
  const Vec lowest = splat(-__builtin_inff());
  const float top = horizontal_max(reduce(
      vocab, lowest, [&](int64_t i, auto lanes) { return keep(load(logits + i, lanes), lowest, lanes); },
      [](Vec a, Vec b) { return vmax(b, a); }));
  const float total = sum_over(
      vocab, [&](int64_t i, auto lanes) { return keep(exp(load(logits + i, lanes) - top), Vec{}, lanes); });
  if (grad) {
    const float factor = grad_scale / total;
    const float one_hot = __builtin_expf(at_label - top) / total - 1.0f;
    for_vectors(vocab, [&](int64_t i, auto lanes) {
      store(grad + i, exp(load(logits + i, lanes) - top) * factor, lanes);
    });
    // p - 1 in fp32 before the one rounding of the store.
    const Vec at = splat(one_hot * grad_scale);
    store(grad + label, at, Part{1});
  }
  return (double(top) - double(at_label)) + __builtin_log(double(total));
}

}  // namespace headrace::kernels::host::HEADRACE_ISA
