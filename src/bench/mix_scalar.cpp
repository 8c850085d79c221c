// SPDX-License-Identifier: Apache-2.0
// The mixes for machines without AVX2: words of 64 bits, no stores around the caches.
#include "bench/mix_kernel.h"

namespace headrace::bench {
namespace {

struct Words {
  using Vec = uint64_t;
  static constexpr size_t kBytes = 8;
  static Vec load(const std::byte* at) {
    Vec x;
    std::memcpy(&x, at, sizeof x);
    return x;
  }
  static void store(std::byte* at, Vec x) { std::memcpy(at, &x, sizeof x); }
  static void stream(std::byte* at, Vec x) { store(at, x); }
  static void fence() {}
  static Vec exclusive_or(Vec a, Vec b) { return a ^ b; }
  static Vec either(Vec a, Vec b) { return a | b; }
  static Vec changing(Vec grad) { return (grad & 0x0002000200020002u) | 0x0001000100010001u; }
  static Vec ones8() { return 0x0101010101010101u; }
};

}  // namespace

constinit const IsaMixes kScalarMixes = isa_mixes<Words>();

}  // namespace headrace::bench
