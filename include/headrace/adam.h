// SPDX-License-Identifier: Apache-2.0
// AdamW on spans of CPU memory: one fused pass that unscales and clips the gradient, decays, updates and
// (bf16) splits the master. Usable without the rest of the library.
//
// Formula, step t >= 1 (Kingma & Ba 2015; Loshchilov & Hutter 2019, "Decoupled Weight Decay"):
//   g  = grad * grad_scale
//   m  = m + (1 - beta1) (g - m)            v = v + (1 - beta2) (g g - v)
//   q  = m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//   w  = w + [ -lr/(1 - beta1^t) q - lr weight_decay w ]        (one rounding of w)
// 1 - beta, both corrections and the products of scalars are computed in double and rounded to fp32 once.
//
// The roundings, in this order and no others (fma rounds once; names are those of StepScalars):
//   g = grad * grad_scale
//   m = fma(one_minus_beta1, g - m, m)
//   v = fma(one_minus_beta2, fma(g, g, -v), v)                  (never negative when it was not)
//   q = m / fma(sqrt(v), inv_sqrt_bias2, eps)
//   w = w + fma(q, neg_step_size, w * neg_lr_decay)
//
// Exactness: scalar, AVX2 and AVX-512 give identical bits, and so does any split of a span into parts: the
// bias correction belongs to the step, not to the call. An element whose weight, m, v and gradient are zero
// stays exactly zero, so padding is inert. Denormals are kept, unless the caller's threads flush them. NaNs
// appear in the same places everywhere; their payloads are unspecified.
//
// The instruction set is picked at run time; the environment variable HEADRACE_ISA = scalar | avx2 | avx512,
// read once, overrides it (an unknown or unsupported value throws ConfigError).
//
// Thread safety: functions are pure on their spans; calls on disjoint spans may run concurrently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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
/// bits. Betas in [0, 1) and eps > 0, else it aborts.
StepScalars make_scalars(const Options& options, uint64_t t, double grad_scale);

/// Gradients of either format; `data` points to the first element of the span.
struct Gradient {
  const void* data;
  DType dtype;

  /// The same gradient from element `index` on.
  Gradient from(size_t index) const {
    return {static_cast<const std::byte*>(data) + index * dtype_bytes(dtype), dtype};
  }
};

/// fp32 weights. All spans have w.size() elements; no alignment beyond the element's own is needed.
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

/// `finite` is false when any element is NaN or infinite, and then `sum` is too.
struct SumSquares {
  double sum;
  bool finite;
};

/// Sum of squares of a gradient in double, by one fixed association on every machine: in each tile of
/// kTileElems from the start of the span, element i is added to lane i % 16 in order, the 16 lanes are folded
/// in halves (k with k + 8, + 4, + 2, + 1), and the tiles are added in order. Squares are exact in double. A
/// span that is cut at multiples of kTileElems can be summed in parts whose single tiles are then added in
/// order.
SumSquares sum_squares(Gradient grad, size_t count);
SumSquares sum_squares(Isa isa, Gradient grad, size_t count);

/// Factor that brings a gradient of this norm down to max_norm: 1 when it is not above it or max_norm is 0
/// (off). For finite norms: whether a step with a non-finite norm is skipped is decided before, by
/// SumSquares::finite.
double clip_coefficient(double norm, double max_norm);

/// Threads that update one span together; the optimizer owns one and calls it for each window. Every thread
/// takes one contiguous run of whole tiles, and the bits are those of a single call whatever the number of
/// threads. A call returns when the whole span is done, allocates nothing of its own, and may run
/// concurrently with others.
class Workers {
 public:
  /// `threads` threads, the calling one included, but no more than oneTBB has in this process (normally one
  /// for each CPU); 0 for all of them. Throws ConfigError for a wrong HEADRACE_ISA.
  explicit Workers(int threads = 0);
  ~Workers();
  Workers(Workers&&) noexcept;
  Workers& operator=(Workers&&) noexcept;

  int threads() const;  ///< how many were granted

  /// Calls job(i) for every i in [0, count), contiguous runs of i per worker; returns when all have returned.
  /// For many short spans: one call instead of one per span. An exception of a job is rethrown.
  void for_each(size_t count, const std::function<void(size_t)>& job);

  void adamw(std::span<float> w, std::span<float> m, std::span<float> v, Gradient grad, const StepScalars& s);
  void adamw(std::span<bf16> hi, std::span<uint16_t> lo, std::span<float> m, std::span<float> v,
             Gradient grad, const StepScalars& s);
  /// The value of the free function, bit for bit.
  SumSquares sum_squares(Gradient grad, size_t count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::adam
