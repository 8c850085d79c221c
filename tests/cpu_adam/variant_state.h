// SPDX-License-Identifier: Apache-2.0
// A parameter's whole state in any format of the update, made from fp32 values and read back as numbers.
#pragma once

#include <algorithm>
#include <string>

#include "tests/cpu_adam/adam_state.h"

namespace headrace::adam::test {

inline std::vector<Format> offered_formats() {
  std::vector<Format> formats;
  for (const Rule rule : {Rule::adamw, Rule::adam, Rule::lion, Rule::adagrad})
    for (const auto weights :
         {WeightFormat::fp32, WeightFormat::fp32_copy, WeightFormat::split, WeightFormat::split24})
      for (const auto moments :
           {MomentFormat::fp32, MomentFormat::bf16_m, MomentFormat::bf16, MomentFormat::q8})
        if (const Format format{rule, weights, moments}; offered(format)) formats.push_back(format);
  return formats;
}

inline std::string name_of(const Format& f) {
  constexpr const char* kRules[] = {"adamw", "adam", "lion", "adagrad"};
  constexpr const char* kWeights[] = {"fp32", "copy", "split", "split24"};
  constexpr const char* kMoments[] = {"fp32", "bf16m", "bf16", "q8"};
  return std::string(kRules[int(f.rule)]) + "_" + kWeights[int(f.weights)] + "_" + kMoments[int(f.moments)];
}

struct VariantState {
  Format format;
  std::vector<float> w, m32, v32, m_scale, v_scale;
  std::vector<bf16> copy, hi, m16, v16;
  std::vector<uint16_t> lo;
  std::vector<uint8_t> lo8, m8, v8;

  VariantState(const Format& f, const std::vector<float>& weights, const std::vector<float>& m,
               const std::vector<float>& v)
      : format(f), w(weights), m32(m), v32(v), copy(w.size(), bf16(0x1234)) {
    const size_t blocks = (w.size() + kBlockElems - 1) / kBlockElems;
    m_scale.resize(blocks);
    v_scale.resize(blocks);
    for (size_t i = 0; i < w.size(); ++i) {
      m_scale[i / kBlockElems] = std::max(m_scale[i / kBlockElems], std::fabs(m[i]));
      v_scale[i / kBlockElems] = std::max(v_scale[i / kBlockElems], std::fabs(v[i]));
    }
    for (size_t i = 0; i < w.size(); ++i) {
      const SplitMaster s = split_master(w[i]);
      hi.push_back(s.hi);
      lo.push_back(s.lo);
      lo8.push_back(uint8_t(s.lo >> 8));
      m16.push_back(to_bf16(m[i]));
      v16.push_back(to_bf16(v[i]));
      m8.push_back(uint8_t(m_code(m[i] / m_scale[i / kBlockElems])));
      v8.push_back(v_code(v[i] / v_scale[i / kBlockElems]));
    }
  }
  explicit VariantState(const Format& f, const std::vector<float>& weights)
      : VariantState(f, weights, std::vector<float>(weights.size()), std::vector<float>(weights.size())) {}

  [[nodiscard]] size_t size() const { return w.size(); }
  Span span(Gradient grad, uint64_t first = 0) {
    void* const ms[] = {m32.data(), m16.data(), m16.data(), m8.data()};
    void* const vs[] = {v32.data(), v32.data(), v16.data(), v8.data()};
    return {.count = w.size(),
            .first = first,
            .w = w.data(),
            .copy = copy.data(),
            .hi = hi.data(),
            .lo = lo.data(),
            .lo8 = lo8.data(),
            .m = ms[size_t(format.moments)],
            .v = vs[size_t(format.moments)],
            .m_scale = m_scale.data(),
            .v_scale = v_scale.data(),
            .grad = grad};
  }
  [[nodiscard]] float weight(size_t i) const {
    if (format.weights == WeightFormat::split) return merge_master({hi[i], lo[i]});
    if (format.weights == WeightFormat::split24) return merge_master({hi[i], uint16_t(lo8[i] << 8)});
    return w[i];
  }
  [[nodiscard]] float m(size_t i) const {
    const float root = float(int8_t(m8[i])) / 127;
    const float values[] = {m32[i], to_float(m16[i]), to_float(m16[i]),
                            m_scale[i / kBlockElems] * root * std::fabs(root)};
    return values[size_t(format.moments)];
  }
  [[nodiscard]] float v(size_t i) const {
    const float root = float(v8[i]) / 255;
    const float values[] = {v32[i], v32[i], to_float(v16[i]),
                            v_scale[i / kBlockElems] * root * root * root * root};
    return values[size_t(format.moments)];
  }

 private:
  /// The nearest codes of values in units of the scale; 0 for what is no number.
  static int8_t m_code(float x) {
    const float k = std::round(127 * std::copysign(std::sqrt(std::fabs(x)), x));
    return std::fabs(k) <= 127 ? int8_t(k) : int8_t(0);
  }
  static uint8_t v_code(float y) {
    const float k = std::round(255 * std::sqrt(std::sqrt(y)));
    return k >= 0 && k <= 255 ? uint8_t(k) : uint8_t(0);
  }
};

/// Every array, those that the format has no use for as well: they must stay what they were.
inline bool same_element(const VariantState& a, const VariantState& b, size_t i) {
  const size_t block = i / kBlockElems;
  const bool nan_block = std::isnan(a.m_scale[block]) || std::isnan(a.v_scale[block]);
  return same(a.w[i], b.w[i]) && same(a.m32[i], b.m32[i]) && same(a.v32[i], b.v32[i]) &&
         same(to_float(a.copy[i]), to_float(b.copy[i])) && same(to_float(a.hi[i]), to_float(b.hi[i])) &&
         ((a.lo[i] == b.lo[i] && a.lo8[i] == b.lo8[i]) || std::isnan(a.weight(i))) &&
         same(to_float(a.m16[i]), to_float(b.m16[i])) && same(to_float(a.v16[i]), to_float(b.v16[i])) &&
         ((a.m8[i] == b.m8[i] && a.v8[i] == b.v8[i]) || nan_block) &&
         same(a.m_scale[block], b.m_scale[block]) && same(a.v_scale[block], b.v_scale[block]);
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
