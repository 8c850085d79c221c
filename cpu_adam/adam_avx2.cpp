// SPDX-License-Identifier: Apache-2.0
// The update for AVX2 with FMA, eight elements at a time. The only file built with those flags; it must be
// entered only where supported(Isa::avx2). A tail goes through eight zeroed lanes on the stack.
#include <immintrin.h>

#include <cstring>

#include "cpu_adam/adam_blocks.h"

namespace headrace::adam {
namespace {

struct Avx2 {
  using F = __m256;
  using I = __m256i;
  static constexpr size_t kLanes = 8;
  static constexpr size_t kStreamAlignment = 1;
  struct Squares {
    __m256d low, high;
  };

  static F set(float x) { return _mm256_set1_ps(x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F sqrt(F a) { return _mm256_sqrt_ps(a); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F fms(F a, F b, F c) { return _mm256_fmsub_ps(a, b, c); }

  static F sign(F x) {
    const F zero = _mm256_setzero_ps(), negative = _mm256_set1_ps(-0.0f);
    const F one = _mm256_or_ps(_mm256_and_ps(x, negative), _mm256_set1_ps(1.0f));
    return _mm256_blendv_ps(x, one, _mm256_cmp_ps(x, zero, _CMP_NEQ_OQ));
  }

  static I set_int(uint32_t x) { return _mm256_set1_epi32(int(x)); }
  static I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
  static I mul_int(I a, I b) { return _mm256_mullo_epi32(a, b); }
  static I exclusive_or(I a, I b) { return _mm256_xor_si256(a, b); }
  template <int kBits>
  static I shift_right(I a) {
    return _mm256_srli_epi32(a, kBits);
  }
  static I numbers(uint32_t first) {
    return _mm256_add_epi32(set_int(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static I low_half(I a) { return _mm256_and_si256(a, _mm256_set1_epi32(0xffff)); }
  static I high_half(I a) { return _mm256_srli_epi32(a, 16); }

  static I and_int(I a, I b) { return _mm256_and_si256(a, b); }
  static I min_int(I a, I b) { return _mm256_min_epu32(a, b); }
  static I max_int(I a, I b) { return _mm256_max_epu32(a, b); }
  static I one_where_less(F a, F b) {
    return _mm256_and_si256(_mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ)), set_int(1));
  }
  static F from_int(I a) { return _mm256_cvtepi32_ps(a); }
  static I truncated(F x) { return _mm256_cvttps_epi32(x); }
  static F abs(F x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static I magnitude_bits(F x) { return _mm256_castps_si256(abs(x)); }
  static float largest(I bits) {
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0b01001110));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0b10110001));
    return _mm_cvtss_f32(_mm_castsi128_ps(most));
  }
  static I with_sign_of(I a, F x) {
    const I sign = _mm256_srai_epi32(_mm256_castps_si256(x), 31);
    return _mm256_sub_epi32(_mm256_xor_si256(a, sign), sign);
  }
  static I load8(const uint8_t* p, Whole) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static I load8(const uint8_t* p, Part part) {
    uint8_t lanes[kLanes] = {};
    std::memcpy(lanes, p, part.count);
    return load8(lanes, Whole{});
  }
  static I sign_extend8(I a) { return _mm256_srai_epi32(_mm256_slli_epi32(a, 24), 24); }
  static void store8(uint8_t* p, Whole, I a) {
    const __m128i words = packed16(_mm256_and_si256(a, set_int(0xff)));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
  }
  static void store8(uint8_t* p, Part part, I a) {
    uint8_t lanes[kLanes];
    store8(lanes, Whole{}, a);
    std::memcpy(p, lanes, part.count);
  }

  static F load(const float* p, Whole) { return _mm256_loadu_ps(p); }
  static F load(const float* p, Part part) {
    float lanes[kLanes] = {};
    std::memcpy(lanes, p, part.count * sizeof(float));
    return _mm256_loadu_ps(lanes);
  }
  static void store(float* p, Whole, F x) { _mm256_storeu_ps(p, x); }
  static void store(float* p, Part part, F x) {
    float lanes[kLanes];
    _mm256_storeu_ps(lanes, x);
    std::memcpy(p, lanes, part.count * sizeof(float));
  }

  static __m256i load16(const void* p, Whole) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static __m256i load16(const void* p, Part part) {
    uint16_t lanes[kLanes] = {};
    std::memcpy(lanes, p, part.count * sizeof(uint16_t));
    return load16(lanes, Whole{});
  }
  // Every lane of x fits 16 bits. The pack works within 128-bit halves, hence the permutation.
  static __m128i packed16(__m256i x) {
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(x, x), 0b1000));
  }
  static void store16(void* p, Whole, __m256i x) { _mm_storeu_si128(static_cast<__m128i*>(p), packed16(x)); }
  static void store16(void* p, Part part, __m256i x) {
    uint16_t lanes[kLanes];
    store16(lanes, Whole{}, x);
    std::memcpy(p, lanes, part.count * sizeof(uint16_t));
  }

  template <class Extent>
  static F load_bf16(const bf16* p, Extent extent) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(load16(p, extent), 16));
  }
  /// Bits of x plus `addend` where x is a number: a NaN must not grow into something else.
  static I add_to_numbers(F x, I addend) {
    const I numbers_only = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
    return _mm256_add_epi32(_mm256_castps_si256(x), _mm256_and_si256(addend, numbers_only));
  }
  static I to_bf16_bits(F x) {
    const I odd = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(x), 16), set_int(1));
    return _mm256_srli_epi32(add_to_numbers(x, _mm256_add_epi32(odd, set_int(0x7fff))), 16);
  }
  template <class Extent>
  static void store_bf16(bf16* p, Extent extent, F x) {
    store16(p, extent, to_bf16_bits(x));
  }
  template <class Extent>
  static void store_bf16(bf16* p, Extent extent, F x, I random) {
    store16(p, extent, _mm256_srli_epi32(add_to_numbers(x, random), 16));
  }
  /// Not streamed: a quarter of a cache line at a time would be slower than through the caches.
  template <class Extent>
  static void stream_bf16(bf16* p, Extent extent, F x) {
    store_bf16(p, extent, x);
  }
  static void fence() {}

  /// The lower half as a signed number: hi was rounded up where its top bit is set.
  template <class Extent>
  static F merge(const bf16* hi, const uint16_t* lo, Extent extent) {
    const __m256i lower = _mm256_srai_epi32(_mm256_slli_epi32(load16(lo, extent), 16), 16);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(load16(hi, extent), 16), lower));
  }
  template <class Extent>
  static void split(bf16* hi, uint16_t* lo, Extent extent, F x) {
    const __m256i bits = _mm256_castps_si256(x);
    store16(hi, extent, _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16));
    store16(lo, extent, _mm256_and_si256(bits, _mm256_set1_epi32(0xffff)));
  }

  template <class Extent>
  static F merge24(const bf16* hi, const uint8_t* lo, Extent extent) {
    const I lower = _mm256_slli_epi32(sign_extend8(load8(lo, extent)), 8);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(load16(hi, extent), 16), lower));
  }
  template <class Extent>
  static void split24(bf16* hi, uint8_t* lo, Extent extent, F x, I random8) {
    const I bits = add_to_numbers(x, random8);
    store16(hi, extent, _mm256_srli_epi32(_mm256_add_epi32(bits, set_int(0x8000)), 16));
    store8(lo, extent, _mm256_srli_epi32(bits, 8));
  }

  static void add_squares(Squares& sum, F x) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    sum.low = _mm256_fmadd_pd(low, low, sum.low);
    sum.high = _mm256_fmadd_pd(high, high, sum.high);
  }
  static void store_squares(double* lanes, const Squares& sum) {
    _mm256_storeu_pd(lanes, sum.low);
    _mm256_storeu_pd(lanes + 4, sum.high);
  }
};

}  // namespace

constinit const IsaKernels kAvx2Kernels = kernels_with_blocks<Vectors<Avx2, Avx2, Avx2>>();

}  // namespace headrace::adam
