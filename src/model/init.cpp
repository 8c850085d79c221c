// SPDX-License-Identifier: Apache-2.0
#include "model/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace headrace {
namespace {

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection that passes as a hash of its counter.
constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

/// FNV-1a over both names; the zero byte keeps ("a", "bc") apart from ("ab", "c").
uint64_t hash_names(std::string_view unit, std::string_view segment) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (const char c : unit) add(static_cast<unsigned char>(c));
  add(0);
  for (const char c : segment) add(static_cast<unsigned char>(c));
  return hash;
}

struct NormalPair {
  double even, odd;
};

/// Two independent normal numbers (Box & Muller 1958), elements 2 * pair and 2 * pair + 1.
NormalPair normal_pair(uint64_t key, uint64_t pair) {
  const uint64_t a = mix(key + kGolden * (2 * pair + 1));
  const uint64_t b = mix(key + kGolden * (2 * pair + 2));
  const double u = (double(a >> 11) + 1.0) * 0x1p-53;  // (0, 1]: the logarithm is finite
  const double angle = 2 * std::numbers::pi * (double(b >> 11) * 0x1p-53);
  const double radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

void initialize_segment(SegmentInit init, uint64_t seed, std::string_view unit, std::string_view segment,
                        int64_t first, std::span<float> out) {
  if (init.kind == SegmentInit::Kind::constant) {
    std::ranges::fill(out, float(init.value));
    return;
  }
  const uint64_t key = mix(mix(seed + kGolden) ^ hash_names(unit, segment));
  for (size_t i = 0; i < out.size();) {
    const uint64_t element = uint64_t(first) + i;
    const NormalPair pair = normal_pair(key, element / 2);
    if (element % 2 == 0) out[i++] = float(init.value * pair.even);
    if (i < out.size()) out[i++] = float(init.value * pair.odd);
  }
}

}  // namespace headrace
