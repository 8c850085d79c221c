// SPDX-License-Identifier: Apache-2.0
// The update for AVX2 with FMA, eight elements at a time. The only file built with those flags; it must be
// entered only where supported(Isa::avx2). A tail goes through eight zeroed lanes on the stack.
#include <immintrin.h>

#include <cstring>

#include "cpu_adam/adam_kernel.h"

namespace headrace::adam {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr size_t kLanes = 8;
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
  static void store16(void* p, Whole, __m256i x) {
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(x, x), 0b1000);
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  static void store16(void* p, Part part, __m256i x) {
    uint16_t lanes[kLanes];
    store16(lanes, Whole{}, x);
    std::memcpy(p, lanes, part.count * sizeof(uint16_t));
  }

  template <class Extent>
  static F load_bf16(const bf16* p, Extent extent) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(load16(p, extent), 16));
  }
  template <class Extent>
  static F merge(const bf16* hi, const uint16_t* lo, Extent extent) {
    const __m256i lower = load16(lo, extent);
    const __m256i upper = _mm256_sub_epi32(load16(hi, extent), _mm256_srli_epi32(lower, 15));
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(upper, 16), lower));
  }
  template <class Extent>
  static void split(bf16* hi, uint16_t* lo, Extent extent, F x) {
    const __m256i bits = _mm256_castps_si256(x);
    store16(hi, extent, _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16));
    store16(lo, extent, _mm256_and_si256(bits, _mm256_set1_epi32(0xffff)));
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

constinit const IsaKernels kAvx2Kernels = kernels_for<Avx2>();

}  // namespace headrace::adam
