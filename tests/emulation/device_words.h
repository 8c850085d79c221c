// SPDX-License-Identifier: Apache-2.0
// The words of CUDA C++ that kernels may use, for a C++ compiler: qualifiers, indices, barriers, warp
// functions, integer atomics, single-precision functions with the rounding that their names promise. What is
// not here does not compile in the emulated build, on purpose: static __shared__ memory and floating-point
// atomics among it.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "tests/emulation/dim3.h"
#include "tests/emulation/warp.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

// Kernels run one at a time and their threads one after another, so these are plain variables that the
// executor sets before a thread goes on.
inline uint3 threadIdx{};
inline uint3 blockIdx{};
inline dim3 blockDim;
inline dim3 gridDim;
constexpr int warpSize = 32;

// Barriers. The call site tells which barrier it is: all threads of a block must be at the same one.

inline void __syncthreads(std::source_location at = std::source_location::current()) {
  headrace::emulation::block_barrier("__syncthreads", at);
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       std::source_location at = std::source_location::current()) {
  headrace::emulation::exchange("__syncwarp", mask, 0, at);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// Warp functions.

namespace headrace::emulation {

template <class T>
concept Shuffled = std::is_arithmetic_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8);

template <Shuffled T>
uint64_t to_word(T x) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<uint32_t>(x);
  } else {
    return std::bit_cast<uint64_t>(x);
  }
}
template <Shuffled T>
T from_word(uint64_t word) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(uint32_t(word));
  } else {
    return std::bit_cast<T>(word);
  }
}

/// `source(lane)`: the lane to take from, within the lane's own segment of `width`; any other keeps its
/// value.
template <Shuffled T, class Source>
T shuffle(const char* what, unsigned mask, T x, int width, Site at, Source source) {
  const WarpWords words = exchange(what, mask, to_word(x), at);
  const int from = source(lane_index());
  return from >= 0 && from / width == lane_index() / width ? from_word<T>(words[unsigned(from)]) : x;
}

}  // namespace headrace::emulation

template <headrace::emulation::Shuffled T>
T __shfl_sync(unsigned mask, T x, int source, int width = 32,
              std::source_location at = std::source_location::current()) {
  return headrace::emulation::shuffle("__shfl_sync", mask, x, width, at, [&](int lane) {
    return lane / width * width + (source & (width - 1));
  });
}
template <headrace::emulation::Shuffled T>
T __shfl_xor_sync(unsigned mask, T x, int lane_mask, int width = 32,
                  std::source_location at = std::source_location::current()) {
  // A lane of an earlier segment may be read, of a later one not.
  const headrace::emulation::WarpWords words =
      headrace::emulation::exchange("__shfl_xor_sync", mask, headrace::emulation::to_word(x), at);
  const int lane = headrace::emulation::lane_index(), from = lane ^ lane_mask;
  const bool read = from < 32 && from / width <= lane / width;
  return read ? headrace::emulation::from_word<T>(words[unsigned(from)]) : x;
}
template <headrace::emulation::Shuffled T>
T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32,
                   std::source_location at = std::source_location::current()) {
  return headrace::emulation::shuffle("__shfl_down_sync", mask, x, width, at,
                                      [&](int lane) { return lane + int(delta); });
}
template <headrace::emulation::Shuffled T>
T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32,
                 std::source_location at = std::source_location::current()) {
  return headrace::emulation::shuffle("__shfl_up_sync", mask, x, width, at,
                                      [&](int lane) { return lane - int(delta); });
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              std::source_location at = std::source_location::current()) {
  return headrace::emulation::ballot("__ballot_sync", mask, predicate != 0, at);
}
inline int __any_sync(unsigned mask, int predicate,
                      std::source_location at = std::source_location::current()) {
  return headrace::emulation::ballot("__any_sync", mask, predicate != 0, at) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      std::source_location at = std::source_location::current()) {
  return headrace::emulation::ballot("__all_sync", mask, predicate != 0, at) == mask;
}

// Atomics return what was there before. Threads take turns at barriers only, so plain accesses are atomic.

namespace headrace::emulation {
template <class T>
concept Atomic = std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, unsigned long long>;
}

template <headrace::emulation::Atomic T>
T atomicAdd(T* at, std::type_identity_t<T> x) {
  const T before = *at;
  *at = T(std::make_unsigned_t<T>(before) + std::make_unsigned_t<T>(x));  // wraps
  return before;
}
template <headrace::emulation::Atomic T>
T atomicMax(T* at, std::type_identity_t<T> x) {
  const T before = *at;
  *at = before < x ? x : before;
  return before;
}
template <headrace::emulation::Atomic T>
T atomicMin(T* at, std::type_identity_t<T> x) {
  const T before = *at;
  *at = x < before ? x : before;
  return before;
}
template <headrace::emulation::Atomic T>
T atomicExch(T* at, std::type_identity_t<T> x) {
  const T before = *at;
  *at = x;
  return before;
}
template <headrace::emulation::Atomic T>
T atomicCAS(T* at, std::type_identity_t<T> compare, std::type_identity_t<T> x) {
  const T before = *at;
  if (before == compare) *at = x;
  return before;
}

// Numbers.

inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __int_as_float(int bits) {
  return std::bit_cast<float>(bits);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(unsigned(x)) + 1;
}
inline int __clz(int x) {
  return std::countl_zero(unsigned(x));
}

// Each operation rounded by itself: the compiler is told not to contract (-ffp-contract=off).
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fsub_rn(float x, float y) {
  return x - y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline float __fmaf_rn(float x, float y, float z) {
  return std::fma(x, y, z);
}
inline float __fdiv_rn(float x, float y) {
  return x / y;
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline double __dadd_rn(double x, double y) {
  return x + y;
}
inline double __dmul_rn(double x, double y) {
  return x * y;
}
inline double __fma_rn(double x, double y, double z) {
  return std::fma(x, y, z);
}
inline float rsqrtf(float x) {
  return float(1.0 / std::sqrt(double(x)));
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __saturatef(float x) {
  return x > 0.0f ? std::fmin(x, 1.0f) : 0.0f;
}

// The C library declares these names for itself, hence macros; the device's fast versions are less exact.
#define __expf(x) ::expf(x)
#define __logf(x) ::logf(x)
#define __log2f(x) ::log2f(x)
#define __sinf(x) ::sinf(x)
#define __cosf(x) ::cosf(x)
#define __powf(x, y) ::powf(x, y)

// Loads and stores with a cache hint.
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T x) {
  *to = x;
}
template <class T>
void __stcg(T* to, T x) {
  *to = x;
}
