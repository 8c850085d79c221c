// SPDX-License-Identifier: Apache-2.0
// Data for the tests of the update: a whole optimizer state in both layouts, repeatable random values, and
// the comparison "same bits, NaN equal to NaN".
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "headrace/adam.h"

namespace headrace::adam::test {

/// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return size_t(next() % n); }
  double uniform(double low, double high) { return low + (high - low) * double(next() >> 11) * 0x1p-53; }
  float bits() { return std::bit_cast<float>(uint32_t(next())); }

 private:
  uint64_t state_;
};

struct State {
  std::vector<float> w, m, v;
  std::vector<bf16> hi;
  std::vector<uint16_t> lo;

  /// Both layouts of the same weights; m and v as given.
  State(std::vector<float> weights, std::vector<float> m_in, std::vector<float> v_in)
      : w(std::move(weights)), m(std::move(m_in)), v(std::move(v_in)), hi(w.size()), lo(w.size()) {
    for (size_t i = 0; i < w.size(); ++i) {
      const SplitMaster s = split_master(w[i]);
      hi[i] = s.hi;
      lo[i] = s.lo;
    }
  }
  explicit State(std::vector<float> weights)
      : State(weights, std::vector<float>(weights.size()), std::vector<float>(weights.size())) {}

  std::vector<float> merged() const {
    std::vector<float> master(hi.size());
    for (size_t i = 0; i < hi.size(); ++i) master[i] = merge_master({hi[i], lo[i]});
    return master;
  }
};

inline Gradient gradient_of(const std::vector<float>& grad) {
  return {grad.data(), DType::f32};
}
inline Gradient gradient_of(const std::vector<bf16>& grad) {
  return {grad.data(), DType::bf16};
}

inline bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

inline ::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " elements";
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) {
      return ::testing::AssertionFailure()
             << "element " << i << " of " << a.size() << ": " << std::hexfloat << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (supported(isa)) isas.push_back(isa);
  }
  return isas;
}

}  // namespace headrace::adam::test
