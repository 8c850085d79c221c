// SPDX-License-Identifier: Apache-2.0
// Consecutive elements as one access of a thread: packed in memory and in registers that wait, fp32 where
// they are computed with. What the kernels of rows and elements share; attention and products do not need it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/port.h"

namespace headrace::kernels::cuda {

/// Elements of T in 16 bytes.
template <class T>
constexpr int kWidest = Pack<T>::kElems;

/// kN elements of T that are read and written in one access: kN * sizeof(T) bytes, aligned to that. Whatever
/// the memory was written as.
template <class T, int kN>
struct Elems;
template <int kN>
struct alignas(4 * kN) [[gnu::may_alias]] Elems<float, kN> {
  float raw[kN];
};
template <int kN>
struct alignas(2 * kN) [[gnu::may_alias]] Elems<bf16, kN> {
  uint32_t raw[kN / 2];
};
template <>
struct [[gnu::may_alias]] Elems<bf16, 1> {
  bf16 raw[1];
};
template <int kN>
struct alignas(2 * kN) [[gnu::may_alias]] Elems<uint16_t, kN> {
  uint16_t raw[kN];
};

template <int kN>
__device__ __forceinline__ void widen_elems(const Elems<float, kN>& from, float (&to)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; ++i) to[i] = from.raw[i];
}
template <int kN>
__device__ __forceinline__ void widen_elems(const Elems<bf16, kN>& from, float (&to)[kN]) {
  if constexpr (kN == 1) {
    to[0] = widen(from.raw[0]);
  } else {
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      to[i] = __uint_as_float(from.raw[i / 2] << 16);
      to[i + 1] = __uint_as_float(from.raw[i / 2] & 0xffff0000u);
    }
  }
}

/// Each rounded once.
template <class T, int kN>
__device__ __forceinline__ Elems<T, kN> narrow_elems(const float (&from)[kN]) {
  Elems<T, kN> to;
  if constexpr (kN == 1 || std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < kN; ++i) to.raw[i] = narrow<T>(from[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kN; i += 2) to.raw[i / 2] = pack_bf16(from[i], from[i + 1]);
  }
  return to;
}

template <int kN, class T>
__device__ __forceinline__ Elems<T, kN> load_elems(const T* from) {
  return *reinterpret_cast<const Elems<T, kN>*>(from);
}
template <int kN, class T>
__device__ __forceinline__ void store_elems(T* to, const Elems<T, kN>& elems) {
  *reinterpret_cast<Elems<T, kN>*>(to) = elems;
}

/// The first `count` elements where memory ends inside the access; the others are 0.
template <int kN, class T>
__device__ __forceinline__ Elems<T, kN> load_elems(const T* from, int64_t count) {
  if (count >= kN) return load_elems<kN>(from);
  float values[kN];
#pragma unroll
  for (int i = 0; i < kN; ++i) values[i] = i < count ? widen(from[i]) : 0.0f;
  return narrow_elems<T>(values);
}
template <int kN, class T>
__device__ __forceinline__ void store_elems(T* to, const float (&values)[kN], int64_t count) {
  if (count >= kN) return store_elems(to, narrow_elems<T>(values));
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    if (i < count) to[i] = narrow<T>(values[i]);
  }
}

// Sums beside an access: kN consecutive fp32 in memory, 16 bytes at a time (an aligned address) or one.

template <int kN>
__device__ __forceinline__ void load_floats(const float* from, float (&to)[kN]) {
  constexpr int kPart = kN < kWidest<float> ? 1 : kWidest<float>;
#pragma unroll
  for (int i = 0; i < kN; i += kPart) {
    const Elems<float, kPart> part = load_elems<kPart>(from + i);
#pragma unroll
    for (int j = 0; j < kPart; ++j) to[i + j] = part.raw[j];
  }
}
template <int kN>
__device__ __forceinline__ void store_floats(float* to, const float (&from)[kN]) {
  constexpr int kPart = kN < kWidest<float> ? 1 : kWidest<float>;
#pragma unroll
  for (int i = 0; i < kN; i += kPart) {
    Elems<float, kPart> part;
#pragma unroll
    for (int j = 0; j < kPart; ++j) part.raw[j] = from[i + j];
    store_elems(to + i, part);
  }
}

/// Where an access lies in a matrix of `per_row` accesses to a row.
struct MatrixAccess {
  int64_t row;
  unsigned index;  ///< in the row
};
/// Accesses are numbered row by row. `first` is the block's first, so that the long division is made once;
/// `offset` is counted from there.
__device__ __forceinline__ MatrixAccess matrix_access(int64_t first, unsigned offset, unsigned per_row) {
  const int64_t row = first / per_row;
  const unsigned index = unsigned(first - row * per_row) + offset;
  return {row + index / per_row, index % per_row};
}

/// Calls f with a value of the C++ type of the format.
template <class F>
void with_type(DType dtype, F&& f) {
  if (dtype == DType::f32) {
    f(float{});
  } else {
    f(bf16{});
  }
}

template <int kN>
using Width = std::integral_constant<int, kN>;

/// Calls f with the elements of an access, as a type: kWide of them, or one where that is not allowed.
template <int kWide, class F>
void with_width(bool wide, F&& f) {
  if (wide) {
    f(Width<kWide>{});
  } else {
    f(Width<1>{});
  }
}

template <class... Pointers>
bool aligned_to(size_t bytes, const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % bytes == 0) && ...);
}

constexpr int round_up_to_warps(int64_t threads) {
  return int(ceil_div(threads, kWarp)) * kWarp;
}

}  // namespace headrace::kernels::cuda
