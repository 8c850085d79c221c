// SPDX-License-Identifier: Apache-2.0
// Optimizer updates on spans of CPU memory: one fused pass that unscales and clips the gradient, decays,
// updates the moments and the weight, and writes the weight's bf16 form. Usable without the rest of the
// library.
//
// Rules, step t >= 1, g = grad * grad_scale:
//   AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019, "Decoupled Weight Decay")
//     m  = m + (1 - beta1) (g - m)            v = v + (1 - beta2) (g g - v)
//     q  = m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//     w  = w + [ -lr/(1 - beta1^t) q - lr weight_decay w ]        (one rounding of w)
//   Adam: the same with g = grad * grad_scale + weight_decay w and no other decay
//   Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"; has no v)
//     w  = w + [ -lr sign(m + (1 - beta1) (g - m)) - lr weight_decay w ]
//     m  = m + (1 - beta2) (g - m)
//   Adagrad (Duchi, Hazan & Singer 2011; has no m), g = grad * grad_scale + weight_decay w
//     v  = v + g g                            w = w - lr g / (sqrt(v) + eps)
// 1 - beta, the corrections and the products of scalars are computed in double and rounded to fp32 once.
//
// The roundings, in this order and no others (fma rounds once; names are those of StepScalars):
//   g = grad * grad_scale                      Adam, Adagrad: g = fma(l2, w, grad * grad_scale)
//   m = fma(one_minus_beta1, g - m, m)         Lion: c of the old m, then m with one_minus_beta2
//   v = fma(one_minus_beta2, fma(g, g, -v), v) (never negative when it was not)     Adagrad: v = fma(g, g, v)
//   q = m / fma(sqrt(v), inv_sqrt_bias2, eps)  Lion: sign(c)     Adagrad: g / fma(sqrt(v), 1, eps)
//   w = w + fma(q, neg_step_size, w * neg_lr_decay)              Adam, Adagrad: w = fma(q, neg_step_size, w)
// Weights and moments in narrower formats than fp32 are widened before and rounded after this.
//
// Exactness: scalar, AVX2 and AVX-512 give identical bits, and so does any split of a span into parts: the
// bias correction belongs to the step, not to the call, and stochastic rounding draws by the element's
// number. An element whose weight, moments and gradient are zero stays exactly zero, so padding is inert.
// Denormals are kept, unless the caller's threads flush them. NaNs appear in the same places everywhere;
// their payloads are unspecified.
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

enum class Rule : uint8_t { adamw, adam, lion, adagrad };

/// How a weight is kept.
enum class WeightFormat : uint8_t {
  fp32,
  fp32_copy,  ///< fp32, and `copy` is written: the weight in bf16, to nearest, ties to even
  split,      ///< hi and lo (see dtype.h): hi is the bf16 weight, lo the lower half of the fp32 master
  split24,    ///< hi and lo8: the lowest 8 bits of the master are rounded away, stochastically
};

/// How the moments are kept.
enum class MomentFormat : uint8_t {
  fp32,
  bf16_m,  ///< m in bf16, to nearest; v in fp32
  bf16,    ///< both in bf16, stochastically: to nearest, v would stop at half a bf16 step above its change
  q8,      ///< both in 8 bits with a scale for each block, stochastically
};

// 8-bit moments, after Dettmers et al. 2022 ("8-bit Optimizers via Block-wise Quantization"), with codes in
// closed form. A block of kBlockElems elements has the scales max |m| and max v in fp32, an element the codes
//   m = m_scale sign(k) (k / 127)^2,  -127 <= k <= 127         v = v_scale (k / 255)^4,  0 <= k <= 255
// which are finer near zero, where most of a block is. A value becomes one of its two neighbours, with the
// odds that make the mean exact; but a v that is not 0 does not become 0, which would make a step 1 / eps
// long.
constexpr size_t kBlockElems = 64;

/// As configurations and files call them.
constexpr const char* kRuleNames[] = {"adamw", "adam", "lion", "adagrad"};
constexpr const char* kMomentNames[] = {"fp32", "bf16_m", "bf16", "q8"};

/// A variant of the update.
struct Format {
  Rule rule = Rule::adamw;
  WeightFormat weights = WeightFormat::fp32;
  MomentFormat moments = MomentFormat::fp32;
  bool operator==(const Format&) const = default;
};

/// What a span of elements consists of.
enum class Array : uint8_t { w, copy, hi, lo, lo8, m, v, m_scale, v_scale };
struct ArrayInfo {
  Array array;
  const char* name;
  size_t bytes;  ///< of `elems` elements; a last piece that is shorter takes as much
  size_t elems;
  [[nodiscard]] constexpr size_t bytes_for(size_t count) const { return (count + elems - 1) / elems * bytes; }
};
/// The arrays of a format without the gradient: first what holds the weight (w; w, copy; hi, lo; hi, lo8),
/// then the moments.
class ArrayList {
 public:
  constexpr explicit ArrayList(const Format& format);
  [[nodiscard]] constexpr const ArrayInfo* begin() const { return infos_; }
  [[nodiscard]] constexpr const ArrayInfo* end() const { return infos_ + count_; }

 private:
  constexpr void add(Array array, const char* name, size_t bytes, size_t elems = 1) {
    infos_[count_++] = {array, name, bytes, elems};
  }
  ArrayInfo infos_[6]{};
  size_t count_ = 0;
};

constexpr ArrayList::ArrayList(const Format& format) {
  if (format.weights == WeightFormat::fp32 || format.weights == WeightFormat::fp32_copy)
    add(Array::w, "w", 4);
  if (format.weights == WeightFormat::fp32_copy) add(Array::copy, "copy", 2);
  if (format.weights == WeightFormat::split || format.weights == WeightFormat::split24)
    add(Array::hi, "hi", 2);
  if (format.weights == WeightFormat::split) add(Array::lo, "lo", 2);
  if (format.weights == WeightFormat::split24) add(Array::lo8, "lo8", 1);
  const bool q8 = format.moments == MomentFormat::q8;
  const size_t m = q8 ? 1 : format.moments == MomentFormat::fp32 ? 4 : 2;
  const size_t v = q8 ? 1 : format.moments == MomentFormat::bf16 ? 2 : 4;
  const bool has_m = format.rule != Rule::adagrad, has_v = format.rule != Rule::lion;
  if (has_m) add(Array::m, "m", m);
  if (has_v) add(Array::v, "v", v);
  if (q8 && has_m) add(Array::m_scale, "m_scale", 4, kBlockElems);
  if (q8 && has_v) add(Array::v_scale, "v_scale", 4, kBlockElems);
}

/// All combinations but these: Lion has fp32 or bf16_m, Adagrad fp32; q8 and split24 go together, with Adam
/// and AdamW.
bool offered(const Format& format);
/// Bytes read and written for one element.
double bytes_moved(const Format& format, DType gradient);

struct Options {
  Rule rule = Rule::adamw;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  uint64_t seed = 0;  ///< of stochastic rounding
};

/// Everything that depends on the step and not on the element. Made once per step and weight decay.
struct StepScalars {
  float one_minus_beta1, one_minus_beta2;
  float inv_sqrt_bias2;  ///< 1 / sqrt(1 - beta2^t)
  float eps;
  float neg_step_size;      ///< -lr / (1 - beta1^t); Lion, Adagrad: -lr
  float neg_lr_decay;       ///< AdamW, Lion: -lr * weight_decay
  float grad_scale;         ///< unscale and clip coefficient
  float l2 = 0;             ///< Adam, Adagrad: weight_decay
  uint64_t random_key = 0;  ///< of stochastic rounding: of the seed and the step
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

/// The arrays of `count` elements; the format says which there are, the others are ignored. The gradient may
/// be in either format. No alignment beyond the element's own is needed.
struct Span {
  size_t count = 0;
  /// Number of the first element among all that share a seed: stochastic rounding draws by it, so it must be
  /// the same however the elements are cut into spans. With q8 a multiple of kBlockElems.
  uint64_t first = 0;
  float* w = nullptr;
  bf16* copy = nullptr;
  bf16* hi = nullptr;
  uint16_t* lo = nullptr;
  uint8_t* lo8 = nullptr;
  void* m = nullptr;         ///< float, bf16 or int8_t
  void* v = nullptr;         ///< float, bf16 or uint8_t
  float* m_scale = nullptr;  ///< one for each block that has begun, from `first` on
  float* v_scale = nullptr;
  Gradient grad{};

  [[nodiscard]] std::byte* array(Array which) const;
  void set_array(Array which, std::byte* data);
  /// `elems` elements from number `index` of this span on; with q8 a multiple of kBlockElems.
  [[nodiscard]] Span part(const Format& format, size_t index, size_t elems) const;
};

/// One pass over a span on the calling thread. A format that is not offered aborts.
void update(const Format& format, const Span& span, const StepScalars& s);
void update(Isa isa, const Format& format, const Span& span, const StepScalars& s);

/// A span with its scalars: tensors with and without weight decay may share a list.
struct ScaledSpan {
  Span span;
  const StepScalars* scalars;
};

/// AdamW on fp32 weights. All spans have w.size() elements; no alignment beyond the element's own is needed.
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
  /// `pin`: while they work, each has a CPU of its own, of different physical cores as long as there are any,
  /// and node by node in the order of the elements. OMP_NUM_THREADS and its like have no say in this.
  explicit Workers(int threads = 0, bool pin = false);
  ~Workers();
  Workers(Workers&&) noexcept;
  Workers& operator=(Workers&&) noexcept;

  int threads() const;  ///< how many were granted

  /// Calls job(i) for every i in [0, count), contiguous runs of i per worker; returns when all have returned.
  /// For many short spans: one call instead of one per span. An exception of a job is rethrown.
  void for_each(size_t count, const std::function<void(size_t)>& job);

  /// Updates all spans of the list as if they were one long span: each worker takes one contiguous run of
  /// elements, whatever the spans' lengths are.
  void update(const Format& format, std::span<const ScaledSpan> spans);

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
