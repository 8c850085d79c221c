// SPDX-License-Identifier: Apache-2.0
// A vector of kLanes floats in GCC's vector extensions, its loads and stores in fp32 and bf16, and exp.
// Included by the files isa_*.cpp only, which define HEADRACE_ISA (the namespace) and HEADRACE_LANES: every
// function here and in its sister headers exists once per instruction set. No standard headers with inline
// functions: the linker could pick a copy that was compiled for a CPU we are not on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/isa.h"

#if HEADRACE_LANES > 4
// The maskz forms are used, as GCC 12 warns about the plain ones in its own header.
#include <immintrin.h>
#endif

#define HEADRACE_INLINE inline __attribute__((always_inline))

namespace headrace::kernels::host::HEADRACE_ISA {

constexpr int64_t kLanes = HEADRACE_LANES;
typedef float Vec __attribute__((vector_size(4 * HEADRACE_LANES)));
typedef int32_t VecI __attribute__((vector_size(4 * HEADRACE_LANES)));
typedef uint32_t VecU __attribute__((vector_size(4 * HEADRACE_LANES)));
typedef uint16_t VecH __attribute__((vector_size(2 * HEADRACE_LANES)));
typedef float VecMemory __attribute__((vector_size(4 * HEADRACE_LANES), aligned(4), may_alias));
typedef uint16_t VecHMemory __attribute__((vector_size(2 * HEADRACE_LANES), aligned(2), may_alias));

// x + 0 would cost an addition, as -0 + 0 is not -0.
HEADRACE_INLINE Vec splat(float x) {
  return x - Vec{};
}
/// a > b ? a : b, so that a NaN in b stays.
HEADRACE_INLINE Vec vmax(Vec a, Vec b) {
#if HEADRACE_LANES == 16
  return Vec(_mm512_maskz_max_ps(__mmask16(-1), __m512(a), __m512(b)));
#elif HEADRACE_LANES == 8
  return Vec(_mm256_max_ps(__m256(a), __m256(b)));
#else
  return a > b ? a : b;
#endif
}
HEADRACE_INLINE Vec vmin(Vec a, Vec b) {
#if HEADRACE_LANES == 16
  return Vec(_mm512_maskz_min_ps(__mmask16(-1), __m512(a), __m512(b)));
#elif HEADRACE_LANES == 8
  return Vec(_mm256_min_ps(__m256(a), __m256(b)));
#else
  return a < b ? a : b;
#endif
}

HEADRACE_INLINE Vec load(const float* p) {
  return *reinterpret_cast<const VecMemory*>(p);
}
HEADRACE_INLINE Vec load(const bf16* p) {
  const VecH half = *reinterpret_cast<const VecHMemory*>(p);
  return Vec(__builtin_convertvector(half, VecU) << 16);
}
HEADRACE_INLINE void store(float* p, Vec x) {
  *reinterpret_cast<VecMemory*>(p) = x;
}
/// to_bf16 of dtype.h, lane by lane.
HEADRACE_INLINE void store(bf16* p, Vec x) {
  const VecU bits = VecU(x);
  const VecU rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const VecU quiet = (bits >> 16) | 0x40u;
  const VecU upper = x == x ? rounded : quiet;
  *reinterpret_cast<VecHMemory*>(p) = __builtin_convertvector(upper, VecH);
}

/// How many lanes of a vector are in the array: all of them, or the first n of the last vector.
struct Full {};
struct Part {
  int64_t n;
};
template <class T>
HEADRACE_INLINE Vec load(const T* p, Full) {
  return load(p);
}
template <class T>
HEADRACE_INLINE Vec load(const T* p, Part part) {
  T memory[kLanes] = {};
  __builtin_memcpy(memory, p, size_t(part.n) * sizeof(T));
  return load(memory);
}
template <class T>
HEADRACE_INLINE void store(T* p, Vec x, Full) {
  store(p, x);
}
template <class T>
HEADRACE_INLINE void store(T* p, Vec x, Part part) {
  T memory[kLanes];
  store(memory, x);
  __builtin_memcpy(p, memory, size_t(part.n) * sizeof(T));
}
/// x in the lanes that are in the array, `other` in the rest.
HEADRACE_INLINE Vec keep(Vec x, Vec, Full) {
  return x;
}
HEADRACE_INLINE Vec keep(Vec x, Vec other, Part part) {
  VecI lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return lane < int32_t(part.n) ? x : other;
}

/// body(i, lanes) for i = 0, kLanes, ... below n.
template <class F>
HEADRACE_INLINE void for_vectors(int64_t n, F body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Full{});
  if (i < n) body(i, Part{n - i});
}

/// The lanes combined as a tree: i with i + kLanes/2 first.
template <class F>
HEADRACE_INLINE float horizontal(Vec x, F combine) {
#if HEADRACE_LANES == 16
  const auto eight = combine(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7),
                             __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
#elif HEADRACE_LANES == 8
  const auto eight = x;
#endif
#if HEADRACE_LANES > 4
  const auto four = combine(__builtin_shufflevector(eight, eight, 0, 1, 2, 3),
                            __builtin_shufflevector(eight, eight, 4, 5, 6, 7));
#else
  const auto four = x;
#endif
  const auto two = combine(four, __builtin_shufflevector(four, four, 2, 3, 2, 3));
  return combine(two, __builtin_shufflevector(two, two, 1, 1, 1, 1))[0];
}
HEADRACE_INLINE float horizontal_sum(Vec x) {
  return horizontal(
      x, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}
HEADRACE_INLINE float horizontal_max(Vec x) {
  return horizontal(
      x, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

/// p 2^n for integers n, where `shifted` is n + magic; denormal and infinite where that is the answer.
HEADRACE_INLINE Vec scale_by_power(Vec p, Vec shifted, Vec magic) {
#if HEADRACE_LANES == 16
  return Vec(_mm512_maskz_scalef_ps(__mmask16(-1), __m512(p), __m512(shifted - magic)));
#else
  // Two factors: 2^-150 and 2^128 are out of fp32's normal range.
  const VecI power = VecI(shifted) - VecI(magic);
  const VecI half = power >> 1;
  return p * Vec((half + 127) << 23) * Vec((power - half + 127) << 23);
#endif
}

/// exp within 2 ulp; overflows to infinity, underflows through denormals to 0, NaN
/// stays NaN. exp(x) = 2^n (1 + r + r^2 p(r)), r = x - n ln 2; p is a Chebyshev fit on
/// |r| <= ln(2)/2 (relative error 1.1e-8).
HEADRACE_INLINE Vec exp(Vec x) {
  x = vmin(splat(89.0f), vmax(splat(-104.0f), x));
  const Vec magic = splat(0x1.8p23f);  // adding it rounds to an integer, which is then in the low bits
  const Vec shifted = x * 0x1.715476p+0f + magic;
  const Vec n = shifted - magic;
  const Vec r = (x - n * 0x1.63p-1f) + n * 0x1.bd0106p-13f;  // ln 2 in two parts, the first exact in 9 bits
  Vec p = splat(0x1.6d1606p-10f);
  p = p * r + 0x1.12106cp-7f;
  p = p * r + 0x1.555516p-5f;
  p = p * r + 0x1.5554d8p-3f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return scale_by_power(p, shifted, magic);
}

/// 1 / x for normal x with a normal inverse, within 1 ulp or so.
HEADRACE_INLINE Vec reciprocal(Vec x) {
#if HEADRACE_LANES == 16
  // A division takes 16 cycles; 14 bits and one step of Newton's method take 3.
  const Vec y = Vec(_mm512_maskz_rcp14_ps(__mmask16(-1), __m512(x)));
  return y + y * (1.0f - x * y);
#else
  return 1.0f / x;
#endif
}

/// 1 / (1 + exp(-x)); 0 below -88.
HEADRACE_INLINE Vec sigmoid(Vec x) {
  return x < splat(-88.0f) ? Vec{} : reciprocal(1.0f + exp(-x));
}

/// start combined with term(0, lanes), term(kLanes, lanes) ... below n, in four chains that hide the latency.
template <class F, class G>
HEADRACE_INLINE Vec reduce(int64_t n, Vec start, F term, G combine) {
  Vec chain[4] = {start, start, start, start};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int64_t c = 0; c < 4; ++c) chain[c] = combine(chain[c], term(i + c * kLanes, Full{}));
  }
  for (; i + kLanes <= n; i += kLanes) chain[0] = combine(chain[0], term(i, Full{}));
  if (i < n) chain[1] = combine(chain[1], term(i, Part{n - i}));
  return combine(combine(chain[0], chain[1]), combine(chain[2], chain[3]));
}

/// Sum over i < n of term(i, lanes); terms must be 0 in lanes beyond n.
template <class F>
HEADRACE_INLINE float sum_over(int64_t n, F term) {
  return horizontal_sum(reduce(n, Vec{}, term, [](Vec a, Vec b) { return a + b; }));
}

}  // namespace headrace::kernels::host::HEADRACE_ISA
