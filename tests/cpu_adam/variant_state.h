// SPDX-License-Identifier: Apache-2.0
// A parameter's whole state in any format of the update, made from fp32 values and read back as numbers.
#pragma once

#include "tests/cpu_adam/adam_state.h"

namespace headrace::adam::test {

inline std::vector<Format> offered_formats() {
  std::vector<Format> formats;
  for (const Rule rule : {Rule::adamw, Rule::adam, Rule::lion, Rule::adagrad})
    for (const auto weights : {WeightFormat::fp32, WeightFormat::fp32_copy, WeightFormat::split})
      for (const auto moments : {MomentFormat::fp32, MomentFormat::bf16_m, MomentFormat::bf16})
        if (const Format format{rule, weights, moments}; offered(format)) formats.push_back(format);
  return formats;
}

inline std::string name_of(const Format& f) {
  constexpr const char* kRules[] = {"adamw", "adam", "lion", "adagrad"};
  constexpr const char* kWeights[] = {"fp32", "copy", "split"};
  constexpr const char* kMoments[] = {"fp32", "bf16m", "bf16"};
  return std::string(kRules[int(f.rule)]) + "_" + kWeights[int(f.weights)] + "_" + kMoments[int(f.moments)];
}

struct VariantState {
  Format format;
  std::vector<float> w, m32, v32;
  std::vector<bf16> copy, hi, m16, v16;
  std::vector<uint16_t> lo;

  VariantState(const Format& f, const std::vector<float>& weights, const std::vector<float>& m,
               const std::vector<float>& v)
      : format(f), w(weights), m32(m), v32(v) {
    for (size_t i = 0; i < w.size(); ++i) {
      const SplitMaster s = split_master(w[i]);
      hi.push_back(s.hi);
      lo.push_back(s.lo);
      copy.push_back(bf16(0x1234));
      m16.push_back(to_bf16(m[i]));
      v16.push_back(to_bf16(v[i]));
    }
  }
  explicit VariantState(const Format& f, const std::vector<float>& weights)
      : VariantState(f, weights, std::vector<float>(weights.size()), std::vector<float>(weights.size())) {}

  [[nodiscard]] size_t size() const { return w.size(); }
  Span span(Gradient grad, uint64_t first = 0) {
    const bool wide_m = format.moments == MomentFormat::fp32, wide_v = format.moments != MomentFormat::bf16;
    return {.count = w.size(),
            .first = first,
            .w = w.data(),
            .copy = copy.data(),
            .hi = hi.data(),
            .lo = lo.data(),
            .m = wide_m ? static_cast<void*>(m32.data()) : m16.data(),
            .v = wide_v ? static_cast<void*>(v32.data()) : v16.data(),
            .grad = grad};
  }
  [[nodiscard]] float weight(size_t i) const {
    return format.weights == WeightFormat::split ? merge_master({hi[i], lo[i]}) : w[i];
  }
  [[nodiscard]] float m(size_t i) const {
    return format.moments == MomentFormat::fp32 ? m32[i] : to_float(m16[i]);
  }
  [[nodiscard]] float v(size_t i) const {
    return format.moments != MomentFormat::bf16 ? v32[i] : to_float(v16[i]);
  }
};

/// Every array, those that the format has no use for as well: they must stay what they were.
inline bool same_element(const VariantState& a, const VariantState& b, size_t i) {
  return same(a.w[i], b.w[i]) && same(a.m32[i], b.m32[i]) && same(a.v32[i], b.v32[i]) &&
         same(to_float(a.copy[i]), to_float(b.copy[i])) && same(to_float(a.hi[i]), to_float(b.hi[i])) &&
         (a.lo[i] == b.lo[i] || std::isnan(a.weight(i))) && same(to_float(a.m16[i]), to_float(b.m16[i])) &&
         same(to_float(a.v16[i]), to_float(b.v16[i]));
}

inline ::testing::AssertionResult same_state(const VariantState& a, const VariantState& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_element(a, b, i))
      return ::testing::AssertionFailure()
             << "element " << i << " of " << a.size() << ": w " << std::hexfloat << a.weight(i) << " and "
             << b.weight(i) << ", m " << a.m(i) << " and " << b.m(i) << ", v " << a.v(i) << " and " << b.v(i);
  return ::testing::AssertionSuccess();
}

}  // namespace headrace::adam::test
