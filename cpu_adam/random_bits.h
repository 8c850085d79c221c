// SPDX-License-Identifier: Apache-2.0
// 32 random bits for each element, a function of (seed, step, element) alone, so that neither cuts of a span
// nor threads nor instruction sets change them. A counter-based generator (Salmon et al. 2011) of one round:
// the element's number is mixed by the 32-bit hash "lowbias32" (C. Wellons, "Prospecting for Hash Functions",
// 2018) with two keys. Good enough to round with, for nothing else.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::adam {
namespace {

/// SplitMix64's output function (Steele, Lea & Flood 2014).
inline uint64_t mix_key(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <class V>
class RandomBits {
 public:
  using I = typename V::I;
  /// Of elements first, first + 1, ... that have the same upper 32 bits as `first`.
  RandomBits(uint64_t step_key, uint64_t first) : first_(uint32_t(first)) {
    const uint64_t key = mix_key(step_key ^ mix_key((first >> 32) + 0x9e3779b97f4a7c15u));
    before_ = V::set_int(uint32_t(key));
    between_ = V::set_int(uint32_t(key >> 32));
  }
  /// For the lanes of the vector that starts at element i.
  I at(size_t i) const {
    I x = V::exclusive_or(V::numbers(first_ + uint32_t(i)), before_);
    x = V::exclusive_or(x, V::template shift_right<16>(x));
    x = V::add_int(V::mul_int(x, V::set_int(0x7feb352du)), between_);
    x = V::exclusive_or(x, V::template shift_right<15>(x));
    x = V::mul_int(x, V::set_int(0x846ca68bu));
    return V::exclusive_or(x, V::template shift_right<16>(x));
  }

 private:
  uint32_t first_;
  I before_, between_;
};

}  // namespace
}  // namespace headrace::adam
