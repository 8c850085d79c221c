// SPDX-License-Identifier: Apache-2.0
// The update for AVX-512 F, BW, VL and DQ, sixteen elements at a time, tails by masked vectors. The only file
// built with those flags; it must be entered only where supported(Isa::avx512).
// Division and square root are the exact instructions: the approximations with a Newton step measured slower.
#include <immintrin.h>

#include "cpu_adam/adam_blocks.h"
#include "cpu_adam/avx512_pairs.h"
#include "cpu_adam/twice.h"

namespace headrace::adam {
namespace {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  static constexpr size_t kLanes = 16;
  struct Squares {
    __m512d low, high;
  };

  static F set(float x) { return _mm512_set1_ps(x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fms(F a, F b, F c) { return _mm512_fmsub_ps(a, b, c); }

  static F sign(F x) {
    const __mmask16 signed_numbers = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    const F one = _mm512_or_ps(_mm512_and_ps(x, _mm512_set1_ps(-0.0f)), _mm512_set1_ps(1.0f));
    return _mm512_mask_mov_ps(x, signed_numbers, one);
  }

  static I set_int(uint32_t x) { return _mm512_set1_epi32(int(x)); }
  static I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
  static I mul_int(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static I exclusive_or(I a, I b) { return _mm512_xor_si512(a, b); }
  template <int kBits>
  static I shift_right(I a) {
    return _mm512_srli_epi32(a, kBits);
  }
  static I numbers(uint32_t first) {
    const I lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(set_int(first), lanes);
  }
  static I low_half(I a) { return _mm512_and_si512(a, _mm512_set1_epi32(0xffff)); }
  static I high_half(I a) { return _mm512_srli_epi32(a, 16); }

  static __mmask16 mask(Part part) { return __mmask16((1u << part.count) - 1); }

  static I and_int(I a, I b) { return _mm512_and_si512(a, b); }
  static I min_int(I a, I b) { return _mm512_min_epu32(a, b); }
  static I max_int(I a, I b) { return _mm512_max_epu32(a, b); }
  static I one_where_less(F a, F b) {
    return _mm512_maskz_set1_epi32(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), 1);
  }
  static F from_int(I a) { return _mm512_cvtepi32_ps(a); }
  static I truncated(F x) { return _mm512_cvttps_epi32(x); }
  static F abs(F x) { return _mm512_abs_ps(x); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static I magnitude_bits(F x) { return _mm512_castps_si512(abs(x)); }
  static float largest(I bits) {
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(int(_mm512_reduce_max_epu32(bits)))));
  }
  static I with_sign_of(I a, F x) {
    const I sign = _mm512_srai_epi32(_mm512_castps_si512(x), 31);
    return _mm512_sub_epi32(_mm512_xor_si512(a, sign), sign);
  }
  static I load8(const uint8_t* p, Whole) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I load8(const uint8_t* p, Part part) {
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask(part), p));
  }
  static I sign_extend8(I a) { return _mm512_srai_epi32(_mm512_slli_epi32(a, 24), 24); }
  static void store8(uint8_t* p, Whole, I a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
  }
  static void store8(uint8_t* p, Part part, I a) {
    _mm_mask_storeu_epi8(p, mask(part), _mm512_cvtepi32_epi8(a));
  }

  static F load(const float* p, Whole) { return _mm512_loadu_ps(p); }
  static F load(const float* p, Part part) { return _mm512_maskz_loadu_ps(mask(part), p); }
  static void store(float* p, Whole, F x) { _mm512_storeu_ps(p, x); }
  static void store(float* p, Part part, F x) { _mm512_mask_storeu_ps(p, mask(part), x); }

  static __m512i load16(const void* p, Whole) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static __m512i load16(const void* p, Part part) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask(part), p));
  }
  static void store16(void* p, Whole, __m512i x) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x));
  }
  static void store16(void* p, Part part, __m512i x) {
    _mm256_mask_storeu_epi16(p, mask(part), _mm512_cvtepi32_epi16(x));
  }

  template <class Extent>
  static F load_bf16(const bf16* p, Extent extent) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(load16(p, extent), 16));
  }
  /// Bits of x plus `addend` where x is a number: a NaN must not grow into something else.
  static I add_to_numbers(F x, I addend) {
    const I bits = _mm512_castps_si512(x);
    return _mm512_mask_add_epi32(bits, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), bits, addend);
  }
  static I to_bf16_bits(F x) {
    const I odd = _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(x), 16), set_int(1));
    return _mm512_srli_epi32(add_to_numbers(x, _mm512_add_epi32(odd, set_int(0x7fff))), 16);
  }
  template <class Extent>
  static void store_bf16(bf16* p, Extent extent, F x) {
    store16(p, extent, to_bf16_bits(x));
  }
  template <class Extent>
  static void store_bf16(bf16* p, Extent extent, F x, I random) {
    store16(p, extent, _mm512_srli_epi32(add_to_numbers(x, random), 16));
  }
  /// 32 elements to a multiple of 64 bytes.
  static void stream_line(bf16* p, F a, F b) {
    const __m256i low = _mm512_cvtepi32_epi16(to_bf16_bits(a)), high = _mm512_cvtepi32_epi16(to_bf16_bits(b));
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p),
                        _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
  }
  static void fence() { _mm_sfence(); }

  /// The lower half as a signed number: hi was rounded up where its top bit is set.
  template <class Extent>
  static F merge(const bf16* hi, const uint16_t* lo, Extent extent) {
    const __m512i lower = _mm512_srai_epi32(_mm512_slli_epi32(load16(lo, extent), 16), 16);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(load16(hi, extent), 16), lower));
  }
  template <class Extent>
  static void split(bf16* hi, uint16_t* lo, Extent extent, F x) {
    const __m512i bits = _mm512_castps_si512(x);
    store16(hi, extent, _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), 16));
    store16(lo, extent, bits);
  }

  template <class Extent>
  static F merge24(const bf16* hi, const uint8_t* lo, Extent extent) {
    const I lower = _mm512_slli_epi32(sign_extend8(load8(lo, extent)), 8);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(load16(hi, extent), 16), lower));
  }
  template <class Extent>
  static void split24(bf16* hi, uint8_t* lo, Extent extent, F x, I random8) {
    const I bits = add_to_numbers(x, random8);
    store16(hi, extent, _mm512_srli_epi32(_mm512_add_epi32(bits, set_int(0x8000)), 16));
    store8(lo, extent, _mm512_srli_epi32(bits, 8));
  }

  static void add_squares(Squares& sum, F x) {
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    sum.low = _mm512_fmadd_pd(low, low, sum.low);
    sum.high = _mm512_fmadd_pd(high, high, sum.high);
  }
  static void store_squares(double* lanes, const Squares& sum) {
    _mm512_storeu_pd(lanes, sum.low);
    _mm512_storeu_pd(lanes + 8, sum.high);
  }
};

}  // namespace

constinit const IsaKernels kAvx512Kernels =
    kernels_with_blocks<Vectors<Avx512, Twice<Avx512>, Avx512Pairs>>();

}  // namespace headrace::adam
