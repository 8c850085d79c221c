// SPDX-License-Identifier: Apache-2.0
// Thirty-two elements of 16 bits as two AVX-512 vectors of fp32: the even ones and the odd ones. Where every
// array of an update has such elements, their order within a vector does not matter, and taking the halves of
// 32-bit lanes apart and together costs a shift, a mask and a blend instead of permutations. Used by
// adam_avx512.cpp only.
#pragma once

#include <immintrin.h>

#include "cpu_adam/adam_kernel.h"

namespace headrace::adam {
namespace {

struct Avx512Pairs {
  struct F {
    __m512 even, odd;
  };
  struct I {
    __m512i even, odd;
  };
  static constexpr size_t kLanes = 32;

  static F set(float x) { return {_mm512_set1_ps(x), _mm512_set1_ps(x)}; }
  static F add(F a, F b) { return {_mm512_add_ps(a.even, b.even), _mm512_add_ps(a.odd, b.odd)}; }
  static F sub(F a, F b) { return {_mm512_sub_ps(a.even, b.even), _mm512_sub_ps(a.odd, b.odd)}; }
  static F mul(F a, F b) { return {_mm512_mul_ps(a.even, b.even), _mm512_mul_ps(a.odd, b.odd)}; }
  static F div(F a, F b) { return {_mm512_div_ps(a.even, b.even), _mm512_div_ps(a.odd, b.odd)}; }
  static F sqrt(F a) { return {_mm512_sqrt_ps(a.even), _mm512_sqrt_ps(a.odd)}; }
  static F fma(F a, F b, F c) {
    return {_mm512_fmadd_ps(a.even, b.even, c.even), _mm512_fmadd_ps(a.odd, b.odd, c.odd)};
  }
  static F fms(F a, F b, F c) {
    return {_mm512_fmsub_ps(a.even, b.even, c.even), _mm512_fmsub_ps(a.odd, b.odd, c.odd)};
  }

  static I set_int(uint32_t x) { return {_mm512_set1_epi32(int(x)), _mm512_set1_epi32(int(x))}; }
  static I add_int(I a, I b) { return {_mm512_add_epi32(a.even, b.even), _mm512_add_epi32(a.odd, b.odd)}; }
  static I mul_int(I a, I b) {
    return {_mm512_mullo_epi32(a.even, b.even), _mm512_mullo_epi32(a.odd, b.odd)};
  }
  static I exclusive_or(I a, I b) {
    return {_mm512_xor_si512(a.even, b.even), _mm512_xor_si512(a.odd, b.odd)};
  }
  template <int kBits>
  static I shift_right(I a) {
    return {_mm512_srli_epi32(a.even, kBits), _mm512_srli_epi32(a.odd, kBits)};
  }
  static I numbers(uint32_t first) {
    const __m512i lanes = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i even = _mm512_add_epi32(_mm512_set1_epi32(int(first)), lanes);
    return {even, _mm512_add_epi32(even, _mm512_set1_epi32(1))};
  }
  static I low_half(I a) {
    const __m512i low = _mm512_set1_epi32(0xffff);
    return {_mm512_and_si512(a.even, low), _mm512_and_si512(a.odd, low)};
  }
  static I high_half(I a) { return shift_right<16>(a); }

  static __m512i load16(const void* p, Whole) { return _mm512_loadu_si512(p); }
  static __m512i load16(const void* p, Part part) { return _mm512_maskz_loadu_epi16(mask(part), p); }
  static void store16(void* p, Whole, __m512i x) { _mm512_storeu_si512(p, x); }
  static void store16(void* p, Part part, __m512i x) { _mm512_mask_storeu_epi16(p, mask(part), x); }

  template <class Extent>
  static F load_bf16(const bf16* p, Extent extent) {
    const __m512i both = load16(p, extent);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)), _mm512_castsi512_ps(upper(both))};
  }
  /// Adds the random bits below what is kept, but not to a NaN, which must not grow into something else.
  template <class Extent>
  static void store_bf16(bf16* p, Extent extent, F x, I random) {
    const __m512i even = add_to_numbers(x.even, random.even), odd = add_to_numbers(x.odd, random.odd);
    store16(p, extent, together(_mm512_srli_epi32(even, 16), odd));
  }
  /// The lower half as a signed number: hi was rounded up where its top bit is set.
  template <class Extent>
  static F merge(const bf16* hi, const uint16_t* lo, Extent extent) {
    const __m512i high = load16(hi, extent), low = load16(lo, extent);
    const __m512i even = _mm512_srai_epi32(_mm512_slli_epi32(low, 16), 16), odd = _mm512_srai_epi32(low, 16);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 16), even)),
            _mm512_castsi512_ps(_mm512_add_epi32(upper(high), odd))};
  }
  template <class Extent>
  static void split(bf16* hi, uint16_t* lo, Extent extent, F x) {
    const __m512i even = _mm512_castps_si512(x.even), odd = _mm512_castps_si512(x.odd);
    const __m512i half = _mm512_set1_epi32(0x8000);
    store16(hi, extent,
            together(_mm512_srli_epi32(_mm512_add_epi32(even, half), 16), _mm512_add_epi32(odd, half)));
    store16(lo, extent, together(even, _mm512_slli_epi32(odd, 16)));
  }

 private:
  static __mmask32 mask(Part part) { return __mmask32((uint64_t(1) << part.count) - 1); }
  static __m512i upper(__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi32(int(0xffff0000))); }
  /// Lower halves of `even`, upper halves of `odd`.
  static __m512i together(__m512i even, __m512i odd) { return _mm512_mask_mov_epi16(even, 0xaaaaaaaa, odd); }
  static __m512i add_to_numbers(__m512 x, __m512i addend) {
    const __m512i bits = _mm512_castps_si512(x);
    return _mm512_mask_add_epi32(bits, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), bits, addend);
  }
};

}  // namespace
}  // namespace headrace::adam
