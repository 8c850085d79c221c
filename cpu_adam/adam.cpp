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
#include "headrace/error.h"

namespace headrace::adam {
namespace {

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

StepScalars make_scalars(const Options& options, uint64_t t, double grad_scale) {
  HEADRACE_CHECK(t >= 1, "steps count from 1");
  HEADRACE_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
                 "betas are in [0, 1)");
  HEADRACE_CHECK(float(options.eps) > 0, "eps of 0 turns padding into 0 / 0");
  const double bias1 = 1 - std::pow(options.beta1, double(t));
  const double bias2 = 1 - std::pow(options.beta2, double(t));
  return {.one_minus_beta1 = float(1 - options.beta1),
          .one_minus_beta2 = float(1 - options.beta2),
          .inv_sqrt_bias2 = float(1 / std::sqrt(bias2)),
          .eps = float(options.eps),
          .neg_step_size = float(-options.lr / bias1),
          .neg_lr_decay = float(-options.lr * options.weight_decay),
          .grad_scale = float(grad_scale)};
}

double clip_coefficient(double norm, double max_norm) {
  return max_norm == 0 || norm <= max_norm ? 1.0 : max_norm / norm;
}

void adamw(Isa isa, std::span<float> w, std::span<float> m, std::span<float> v, Gradient grad,
           const StepScalars& s) {
  HEADRACE_CHECK(m.size() == w.size() && v.size() == w.size(), "spans differ in length");
  kernels_of(isa).fp32({w.data(), nullptr, nullptr, m.data(), v.data(), grad, w.size()}, s);
}

void adamw(Isa isa, std::span<bf16> hi, std::span<uint16_t> lo, std::span<float> m, std::span<float> v,
           Gradient grad, const StepScalars& s) {
  HEADRACE_CHECK(lo.size() == hi.size() && m.size() == hi.size() && v.size() == hi.size(),
                 "spans differ in length");
  kernels_of(isa).split({nullptr, hi.data(), lo.data(), m.data(), v.data(), grad, hi.size()}, s);
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
