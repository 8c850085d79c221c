// SPDX-License-Identifier: Apache-2.0
// The public functions of headrace/adam.h on one thread: scalars of a step, the choice of the instruction
// set, checks of the spans. The arithmetic on elements is in adam_kernel.h.
#include "headrace/adam.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cpu_adam/isa_kernels.h"
#include "cpu_adam/random_bits.h"
#include "headrace/error.h"

namespace headrace::adam {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;  // SplitMix64's increment
constexpr uint64_t kNumbersOfAKey = uint64_t(1) << 32;

constexpr Isa kBestFirst[] = {Isa::avx512, Isa::avx2, Isa::scalar};

const IsaKernels& kernels_of(Isa isa) {
  HEADRACE_CHECK(supported(isa), isa_name(isa));
#ifdef HEADRACE_ADAM_X86
  if (isa == Isa::avx512) return kAvx512Kernels;
  if (isa == Isa::avx2) return kAvx2Kernels;
#endif
  return kScalarKernels;
}

/// Pairs at distance 8, 4, 2, 1: the order is part of the contract of sum_squares().
double fold(double* lanes) {
  for (size_t half = kSquareLanes / 2; half > 0; half /= 2) {
    for (size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  }
  return lanes[0];
}

}  // namespace

bool supported(Isa isa) {
  if (isa == Isa::scalar) return true;
#ifdef HEADRACE_ADAM_X86
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "unknown";
}

Isa choose_isa(const char* wanted) {
  const std::string_view name = wanted ? wanted : "";
  std::string usable;
  for (const Isa isa : kBestFirst) {
    if (!supported(isa)) continue;
    if (name.empty() || name == isa_name(isa)) return isa;
    usable += (usable.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  throw ConfigError("HEADRACE_ISA", "\"" + std::string(name) +
                                        "\" is not an instruction set that this machine runs; " +
                                        "unset it or use one of: " + usable);
}

Isa active_isa() {
  static const Isa isa = choose_isa(std::getenv("HEADRACE_ISA"));
  return isa;
}

bool offered(const Format& format) {
  return kScalarKernels.update[size_t(format.rule)][size_t(format.weights)][size_t(format.moments)][0] !=
         nullptr;
}

double bytes_moved(const Format& format, DType gradient) {
  double bytes = double(dtype_bytes(gradient));
  for (const ArrayInfo& info : ArrayList(format))
    bytes += (info.array == Array::copy ? 1 : 2) * double(info.bytes) / double(info.elems);
  return bytes;
}

StepScalars make_scalars(const Options& options, uint64_t t, double grad_scale) {
  HEADRACE_CHECK(t >= 1, "steps count from 1");
  HEADRACE_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
                 "betas are in [0, 1)");
  HEADRACE_CHECK(float(options.eps) > 0, "eps of 0 turns padding into 0 / 0");
  const bool corrected = options.rule == Rule::adamw || options.rule == Rule::adam;
  const bool decoupled = options.rule == Rule::adamw || options.rule == Rule::lion;
  const double bias1 = corrected ? 1 - std::pow(options.beta1, double(t)) : 1;
  const double bias2 = corrected ? 1 - std::pow(options.beta2, double(t)) : 1;
  return {.one_minus_beta1 = float(1 - options.beta1),
          .one_minus_beta2 = float(1 - options.beta2),
          .inv_sqrt_bias2 = float(1 / std::sqrt(bias2)),
          .eps = float(options.eps),
          .neg_step_size = float(-options.lr / bias1),
          .neg_lr_decay = decoupled ? float(-options.lr * options.weight_decay) : 0.0f,
          .grad_scale = float(grad_scale),
          .l2 = decoupled ? 0.0f : float(options.weight_decay),
          .random_key = mix_key(mix_key(options.seed + kGolden) + t * kGolden)};
}

double clip_coefficient(double norm, double max_norm) {
  return max_norm == 0 || norm <= max_norm ? 1.0 : max_norm / norm;
}

std::byte* Span::array(Array which) const {
  void* const arrays[] = {w, copy, hi, lo, lo8, m, v, m_scale, v_scale};
  return static_cast<std::byte*>(arrays[size_t(which)]);
}

void Span::set_array(Array which, std::byte* data) {
  switch (which) {
    case Array::w:
      w = reinterpret_cast<float*>(data);
      break;
    case Array::copy:
      copy = reinterpret_cast<bf16*>(data);
      break;
    case Array::hi:
      hi = reinterpret_cast<bf16*>(data);
      break;
    case Array::lo:
      lo = reinterpret_cast<uint16_t*>(data);
      break;
    case Array::lo8:
      lo8 = reinterpret_cast<uint8_t*>(data);
      break;
    case Array::m:
      m = data;
      break;
    case Array::v:
      v = data;
      break;
    case Array::m_scale:
      m_scale = reinterpret_cast<float*>(data);
      break;
    case Array::v_scale:
      v_scale = reinterpret_cast<float*>(data);
      break;
  }
}

Span Span::part(const Format& format, size_t index, size_t elems) const {
  HEADRACE_CHECK(index <= count && elems <= count - index, "a part is within its span");
  HEADRACE_CHECK(format.moments != MomentFormat::q8 || index % kBlockElems == 0, "blocks are not cut");
  Span part{.count = elems, .first = first + index, .grad = grad.from(index)};
  for (const ArrayInfo& info : ArrayList(format))
    part.set_array(info.array, array(info.array) + index / info.elems * info.bytes);
  return part;
}

void update_unfenced(Isa isa, const Format& format, const Span& span, const StepScalars& s) {
  const Update run = kernels_of(isa).update[size_t(format.rule)][size_t(format.weights)]
                                           [size_t(format.moments)][size_t(span.grad.dtype)];
  HEADRACE_CHECK(run, "this rule does not have this format");
  HEADRACE_CHECK(format.moments != MomentFormat::q8 || span.first % kBlockElems == 0, "blocks are not cut");
  const uint64_t of_this_key = kNumbersOfAKey - span.first % kNumbersOfAKey;
  if (span.count <= of_this_key) return run(span, s);
  const size_t elems = size_t(of_this_key);
  run(span.part(format, 0, elems), s);
  update_unfenced(isa, format, span.part(format, elems, span.count - elems), s);
}

void fence(Isa isa) {
  kernels_of(isa).fence();
}

void update(Isa isa, const Format& format, const Span& span, const StepScalars& s) {
  update_unfenced(isa, format, span, s);
  fence(isa);
}

void update(const Format& format, const Span& span, const StepScalars& s) {
  update(active_isa(), format, span, s);
}

void adamw(Isa isa, std::span<float> w, std::span<float> m, std::span<float> v, Gradient grad,
           const StepScalars& s) {
  HEADRACE_CHECK(m.size() == w.size() && v.size() == w.size(), "spans differ in length");
  update(isa, {}, {.count = w.size(), .w = w.data(), .m = m.data(), .v = v.data(), .grad = grad}, s);
}

void adamw(Isa isa, std::span<bf16> hi, std::span<uint16_t> lo, std::span<float> m, std::span<float> v,
           Gradient grad, const StepScalars& s) {
  HEADRACE_CHECK(lo.size() == hi.size() && m.size() == hi.size() && v.size() == hi.size(),
                 "spans differ in length");
  update(isa, {.weights = WeightFormat::split},
         {.count = hi.size(), .hi = hi.data(), .lo = lo.data(), .m = m.data(), .v = v.data(), .grad = grad},
         s);
}

void adamw(std::span<float> w, std::span<float> m, std::span<float> v, Gradient grad, const StepScalars& s) {
  adamw(active_isa(), w, m, v, grad, s);
}

void adamw(std::span<bf16> hi, std::span<uint16_t> lo, std::span<float> m, std::span<float> v, Gradient grad,
           const StepScalars& s) {
  adamw(active_isa(), hi, lo, m, v, grad, s);
}

SumSquares sum_squares(Isa isa, Gradient grad, size_t count) {
  const IsaKernels& kernels = kernels_of(isa);
  double sum = 0;
  for (size_t begin = 0; begin < count; begin += kTileElems) {
    double lanes[kSquareLanes];
    kernels.square_lanes(grad.from(begin), std::min(kTileElems, count - begin), lanes);
    sum += fold(lanes);
  }
  // Squares of finite fp32 numbers stay below 2^256, so only a non-finite element can reach infinity or NaN.
  return {.sum = sum, .finite = std::isfinite(sum)};
}

SumSquares sum_squares(Gradient grad, size_t count) {
  return sum_squares(active_isa(), grad, count);
}

}  // namespace headrace::adam
