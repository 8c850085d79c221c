// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the update rules on one vector V of elements, in the order of roundings that
// headrace/adam.h promises. A rule is made from a step's scalars and turns (g, w, m, v) into the new values;
// what it has no use for (kHasM, kHasV) it leaves alone.
#pragma once

#include "cpu_adam/isa_kernels.h"

namespace headrace::adam {
namespace {

/// What Adam and AdamW have in common: the moments of a gradient, and q = m / (sqrt(v) / sqrt(1 - beta2^t) +
/// eps).
template <class V>
struct AdamMoments {
  using F = typename V::F;

  explicit AdamMoments(const StepScalars& s)
      : one_minus_beta1(V::set(s.one_minus_beta1)),
        one_minus_beta2(V::set(s.one_minus_beta2)),
        inv_sqrt_bias2(V::set(s.inv_sqrt_bias2)),
        eps(V::set(s.eps)) {}

  F operator()(F g, F& m, F& v) const {
    m = V::fma(one_minus_beta1, V::sub(g, m), m);
    v = V::fma(one_minus_beta2, V::fms(g, g, v), v);
    return V::div(m, V::fma(V::sqrt(v), inv_sqrt_bias2, eps));
  }

 private:
  F one_minus_beta1, one_minus_beta2, inv_sqrt_bias2, eps;
};

template <class V>
struct Adamw {
  using F = typename V::F;
  static constexpr bool kHasM = true, kHasV = true;

  explicit Adamw(const StepScalars& s)
      : moments(s),
        neg_step_size(V::set(s.neg_step_size)),
        neg_lr_decay(V::set(s.neg_lr_decay)),
        grad_scale(V::set(s.grad_scale)) {}

  void operator()(F grad, F& w, F& m, F& v) const {
    const F q = moments(V::mul(grad, grad_scale), m, v);
    w = V::add(w, V::fma(q, neg_step_size, V::mul(w, neg_lr_decay)));
  }

 private:
  AdamMoments<V> moments;
  F neg_step_size, neg_lr_decay, grad_scale;
};

template <class V>
struct Adam {
  using F = typename V::F;
  static constexpr bool kHasM = true, kHasV = true;

  explicit Adam(const StepScalars& s)
      : moments(s),
        neg_step_size(V::set(s.neg_step_size)),
        l2(V::set(s.l2)),
        grad_scale(V::set(s.grad_scale)) {}

  void operator()(F grad, F& w, F& m, F& v) const {
    const F q = moments(V::fma(l2, w, V::mul(grad, grad_scale)), m, v);
    w = V::fma(q, neg_step_size, w);
  }

 private:
  AdamMoments<V> moments;
  F neg_step_size, l2, grad_scale;
};

template <class V>
struct Lion {
  using F = typename V::F;
  static constexpr bool kHasM = true, kHasV = false;

  explicit Lion(const StepScalars& s)
      : one_minus_beta1(V::set(s.one_minus_beta1)),
        one_minus_beta2(V::set(s.one_minus_beta2)),
        neg_step_size(V::set(s.neg_step_size)),
        neg_lr_decay(V::set(s.neg_lr_decay)),
        grad_scale(V::set(s.grad_scale)) {}

  void operator()(F grad, F& w, F& m, F&) const {
    const F towards = V::sub(V::mul(grad, grad_scale), m);
    const F c = V::fma(one_minus_beta1, towards, m);
    w = V::add(w, V::fma(V::sign(c), neg_step_size, V::mul(w, neg_lr_decay)));
    m = V::fma(one_minus_beta2, towards, m);
  }

 private:
  F one_minus_beta1, one_minus_beta2, neg_step_size, neg_lr_decay, grad_scale;
};

template <class V>
struct Adagrad {
  using F = typename V::F;
  static constexpr bool kHasM = false, kHasV = true;

  explicit Adagrad(const StepScalars& s)
      : one(V::set(1.0f)),
        eps(V::set(s.eps)),
        neg_step_size(V::set(s.neg_step_size)),
        l2(V::set(s.l2)),
        grad_scale(V::set(s.grad_scale)) {}

  void operator()(F grad, F& w, F&, F& v) const {
    const F g = V::fma(l2, w, V::mul(grad, grad_scale));
    v = V::fma(g, g, v);
    w = V::fma(V::div(g, V::fma(V::sqrt(v), one, eps)), neg_step_size, w);
  }

 private:
  F one, eps, neg_step_size, l2, grad_scale;
};

}  // namespace
}  // namespace headrace::adam
