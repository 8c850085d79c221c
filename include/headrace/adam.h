// SPDX-License-Identifier: Apache-2.0
// AdamW on spans of CPU memory: one fused pass that unscales and clips the gradient, decays, updates and
// (bf16) splits the master. Usable without the rest of the library.
//
// Formula (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", 2019; Kingma & Ba 2015), step t >=
// 1:
//   g  = grad * grad_scale
//   m  = m + (1 - beta1) (g - m)            v = v + (1 - beta2) (g g - v)
//   q  = m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//   w  = w + [ -lr/(1 - beta1^t) q - lr weight_decay w ]        (one rounding of w)
// 1 - beta, both corrections and the products of scalars are computed in double and rounded to fp32 once.
//
// Exactness: scalar, AVX2 and AVX-512 give identical bits, and so does any split of a span into parts: the
// bias correction belongs to the step, not to the call. The instruction set is picked at run time; the
// environment variable HEADRACE_ISA = scalar | avx2 | avx512 overrides it (an unknown or unsupported value
// throws ConfigError). Thread safety: functions are pure on their spans; calls on disjoint spans may run
// concurrently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/dtype.h"

namespace headrace::adam {

enum class Isa : uint8_t { scalar, avx2, avx512 };

/// The instruction set that adamw() uses on this machine (HEADRACE_ISA honoured).
Isa active_isa();
/// Whether this CPU (and build) can run `isa`.
bool supported(Isa isa);
const char* isa_name(Isa isa);

struct Options {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
};

/// Everything that depends on the step and not on the element. Made once per step and weight decay.
struct StepScalars {
  float one_minus_beta1, one_minus_beta2;
  float inv_sqrt_bias2;  ///< 1 / sqrt(1 - beta2^t)
  float eps;
  float neg_step_size;  ///< -lr / (1 - beta1^t)
  float neg_lr_decay;   ///< -lr * weight_decay
  float grad_scale;     ///< unscale and clip coefficient
};

/// `t` counts from 1; beta^t is the closed form pow(beta, t) in double, so that a resumed run has the same
/// bits.
StepScalars make_scalars(const Options& options, uint64_t t, double grad_scale);

/// Gradients of either format; `data` points to the first element of the span.
struct Gradient {
  const void* data;
  DType dtype;
};

/// fp32 weights. All spans have w.size() elements; no alignment needed.
void adamw(std::span<float> w, std::span<float> m, std::span<float> v, Gradient grad, const StepScalars& s);

/// Split master (see dtype.h): hi is the bf16 weight, lo the lower half of the fp32 master.
void adamw(std::span<bf16> hi, std::span<uint16_t> lo, std::span<float> m, std::span<float> v, Gradient grad,
           const StepScalars& s);

/// The same with the instruction set named, for tests and benchmarks; aborts when it is not supported.
void adamw(Isa isa, std::span<float> w, std::span<float> m, std::span<float> v, Gradient grad,
           const StepScalars& s);
void adamw(Isa isa, std::span<bf16> hi, std::span<uint16_t> lo, std::span<float> m, std::span<float> v,
           Gradient grad, const StepScalars& s);

/// Elements a worker takes at a time: below this, streams are too short for the hardware prefetcher.
constexpr size_t kTileElems = 64 * 1024;

}  // namespace headrace::adam
