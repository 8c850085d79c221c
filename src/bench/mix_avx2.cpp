// SPDX-License-Identifier: Apache-2.0
// The mixes for AVX2. The only file of this module built with its flags; it must be entered only where
// adam::supported(Isa::avx2).
#include <immintrin.h>

#include "bench/mix_kernel.h"

namespace headrace::bench {
namespace {

struct Avx2 {
  using Vec = __m256i;
  static constexpr size_t kBytes = 32;
  static Vec load(const std::byte* at) { return _mm256_loadu_si256(reinterpret_cast<const Vec*>(at)); }
  static void store(std::byte* at, Vec x) { _mm256_storeu_si256(reinterpret_cast<Vec*>(at), x); }
  static void stream(std::byte* at, Vec x) { _mm256_stream_si256(reinterpret_cast<Vec*>(at), x); }
  static void fence() { _mm_sfence(); }
  static Vec exclusive_or(Vec a, Vec b) { return _mm256_xor_si256(a, b); }
  static Vec either(Vec a, Vec b) { return _mm256_or_si256(a, b); }
  static Vec changing(Vec grad) {
    return _mm256_or_si256(_mm256_and_si256(grad, _mm256_set1_epi16(2)), _mm256_set1_epi16(1));
  }
  static Vec ones8() { return _mm256_set1_epi8(1); }
};

}  // namespace

constinit const IsaMixes kAvx2Mixes = isa_mixes<Avx2>();

}  // namespace headrace::bench
