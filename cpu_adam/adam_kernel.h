// SPDX-License-Identifier: Apache-2.0
// The algorithm of the update, written once over a vector type V. Each instruction set's file defines V
// (loads, stores, correctly rounded arithmetic) and includes this. The order of roundings is the one of
// headrace/adam.h; changing it here changes it on every instruction set.
//
// Everything is in an unnamed namespace, so that no instantiation can be shared between files built with
// different flags.
#pragma once

#include "cpu_adam/isa_kernels.h"

namespace headrace::adam {
namespace {

/// How much of a vector an access touches: all lanes, or the first `count` of them (the rest read as zero).
struct Whole {};
struct Part {
  size_t count;
};

template <class V>
struct Fp32Weights {
  template <class Extent>
  static typename V::F load(const Streams& s, size_t i, Extent extent) {
    return V::load(s.w + i, extent);
  }
  template <class Extent>
  static void store(const Streams& s, size_t i, Extent extent, typename V::F w) {
    V::store(s.w + i, extent, w);
  }
};

template <class V>
struct SplitWeights {
  template <class Extent>
  static typename V::F load(const Streams& s, size_t i, Extent extent) {
    return V::merge(s.hi + i, s.lo + i, extent);
  }
  template <class Extent>
  static void store(const Streams& s, size_t i, Extent extent, typename V::F w) {
    V::split(s.hi + i, s.lo + i, extent, w);
  }
};

template <class V>
struct Fp32Grad {
  template <class Extent>
  static typename V::F load(const void* grad, size_t i, Extent extent) {
    return V::load(static_cast<const float*>(grad) + i, extent);
  }
};

template <class V>
struct Bf16Grad {
  template <class Extent>
  static typename V::F load(const void* grad, size_t i, Extent extent) {
    return V::load_bf16(static_cast<const bf16*>(grad) + i, extent);
  }
};

template <class V>
struct Broadcast {
  explicit Broadcast(const StepScalars& s)
      : one_minus_beta1(V::set(s.one_minus_beta1)),
        one_minus_beta2(V::set(s.one_minus_beta2)),
        inv_sqrt_bias2(V::set(s.inv_sqrt_bias2)),
        eps(V::set(s.eps)),
        neg_step_size(V::set(s.neg_step_size)),
        neg_lr_decay(V::set(s.neg_lr_decay)),
        grad_scale(V::set(s.grad_scale)) {}
  typename V::F one_minus_beta1, one_minus_beta2, inv_sqrt_bias2, eps, neg_step_size, neg_lr_decay,
      grad_scale;
};

template <class V, class Weights, class Grad, class Extent>
inline void update(const Streams& s, const Broadcast<V>& c, size_t i, Extent extent) {
  using F = typename V::F;
  const F g = V::mul(Grad::load(s.grad.data, i, extent), c.grad_scale);
  const F m_old = V::load(s.m + i, extent);
  const F v_old = V::load(s.v + i, extent);
  const F w_old = Weights::load(s, i, extent);
  const F m = V::fma(c.one_minus_beta1, V::sub(g, m_old), m_old);
  const F v = V::fma(c.one_minus_beta2, V::fms(g, g, v_old), v_old);
  const F q = V::div(m, V::fma(V::sqrt(v), c.inv_sqrt_bias2, c.eps));
  const F w = V::add(w_old, V::fma(q, c.neg_step_size, V::mul(w_old, c.neg_lr_decay)));
  V::store(s.m + i, extent, m);
  V::store(s.v + i, extent, v);
  Weights::store(s, i, extent, w);
}

// `s` by value: vector stores may alias anything, and pointers behind a reference would be reloaded each
// time.
template <class V, class Weights, class Grad>
void update_span(const Streams s, const StepScalars& scalars) {
  const Broadcast<V> c(scalars);
  size_t i = 0;
  for (; i + V::kLanes <= s.count; i += V::kLanes) update<V, Weights, Grad>(s, c, i, Whole{});
  if constexpr (V::kLanes > 1) {
    if (i < s.count) update<V, Weights, Grad>(s, c, i, Part{s.count - i});
  }
}

template <class V, template <class> class Weights>
void update_any(const Streams& s, const StepScalars& scalars) {
  if (s.grad.dtype == DType::f32) {
    update_span<V, Weights<V>, Fp32Grad<V>>(s, scalars);
  } else {
    update_span<V, Weights<V>, Bf16Grad<V>>(s, scalars);
  }
}

// The square of an fp32 number is exact in double, so only the order of the additions matters.
template <class V, class Grad>
void square_lanes_of(const void* grad, size_t count, double* lanes) {
  constexpr size_t kVectors = kSquareLanes / V::kLanes;
  typename V::Squares sums[kVectors] = {};
  size_t i = 0;
  for (; i + kSquareLanes <= count; i += kSquareLanes) {
    for (size_t k = 0; k < kVectors; ++k)
      V::add_squares(sums[k], Grad::load(grad, i + k * V::kLanes, Whole{}));
  }
  for (size_t k = 0; i < count; ++k, i += V::kLanes) {
    if (i + V::kLanes <= count) {
      V::add_squares(sums[k], Grad::load(grad, i, Whole{}));
    } else if constexpr (V::kLanes > 1) {
      V::add_squares(sums[k], Grad::load(grad, i, Part{count - i}));
    }
  }
  for (size_t k = 0; k < kVectors; ++k) V::store_squares(lanes + k * V::kLanes, sums[k]);
}

template <class V>
void square_lanes_any(Gradient grad, size_t count, double* lanes) {
  if (grad.dtype == DType::f32) {
    square_lanes_of<V, Fp32Grad<V>>(grad.data, count, lanes);
  } else {
    square_lanes_of<V, Bf16Grad<V>>(grad.data, count, lanes);
  }
}

template <class V>
constexpr IsaKernels kernels_for() {
  return {update_any<V, Fp32Weights>, update_any<V, SplitWeights>, square_lanes_any<V>};
}

}  // namespace
}  // namespace headrace::adam
