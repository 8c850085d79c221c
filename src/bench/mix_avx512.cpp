// SPDX-License-Identifier: Apache-2.0
// The mixes for AVX-512 F, BW, VL and DQ. The only file of this module built with those flags; it must be
// entered only where adam::supported(Isa::avx512).
#include <immintrin.h>

#include "bench/mix_kernel.h"

namespace headrace::bench {
namespace {

struct Avx512 {
  using Vec = __m512i;
  static constexpr size_t kBytes = 64;
  static Vec load(const std::byte* at) { return _mm512_loadu_si512(at); }
  static void store(std::byte* at, Vec x) { _mm512_storeu_si512(at, x); }
  static void stream(std::byte* at, Vec x) { _mm512_stream_si512(reinterpret_cast<Vec*>(at), x); }
  static void fence() { _mm_sfence(); }
  static Vec exclusive_or(Vec a, Vec b) { return _mm512_xor_si512(a, b); }
  static Vec either(Vec a, Vec b) { return _mm512_or_si512(a, b); }
  static Vec changing(Vec grad) {
    return _mm512_or_si512(_mm512_and_si512(grad, _mm512_set1_epi16(2)), _mm512_set1_epi16(1));
  }
  static Vec ones8() { return _mm512_set1_epi8(1); }
};

}  // namespace

constinit const IsaMixes kAvx512Mixes = isa_mixes<Avx512>();

}  // namespace headrace::bench
