// SPDX-License-Identifier: Apache-2.0
// Small fp32 matrix products and transposes of attention's tiles (see vec.h for how this is compiled). A is
// read element by element with any strides and broadcast; rows of B and C are contiguous.
#pragma once

#include "kernels/host/simd/vec.h"

namespace headrace::kernels::host::HEADRACE_ISA {

/// Rows of C held in registers at a time; every row count given to multiply() is a multiple of it.
constexpr int64_t kBlockRows = HEADRACE_LANES == 16 ? 8 : 4;

struct Strided {
  const float* data;
  int64_t row_stride, col_stride;
};

/// Not inlined: GCC then keeps every sum in its register, and there are four copies instead of a hundred.
template <int kVectors, bool kAccumulate>
__attribute__((noinline)) void multiply_block(int64_t depth, Strided a, const float* b, int64_t ldb, float* c,
                                              int64_t ldc) {
  Vec sum[kBlockRows][kVectors];
  for (int64_t r = 0; r < kBlockRows; ++r) {
    for (int64_t v = 0; v < kVectors; ++v) sum[r][v] = kAccumulate ? load(c + r * ldc + v * kLanes) : Vec{};
  }
  for (int64_t p = 0; p < depth; ++p) {
    Vec row[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) row[v] = load(b + p * ldb + v * kLanes);
    for (int64_t r = 0; r < kBlockRows; ++r) {
      const Vec left = splat(a.data[r * a.row_stride + p * a.col_stride]);
      for (int64_t v = 0; v < kVectors; ++v) sum[r][v] += left * row[v];
    }
  }
  for (int64_t r = 0; r < kBlockRows; ++r) {
    for (int64_t v = 0; v < kVectors; ++v) store(c + r * ldc + v * kLanes, sum[r][v]);
  }
}

template <int kVectors, bool kAccumulate>
HEADRACE_INLINE void multiply_columns(int64_t rows, int64_t depth, Strided a, const float* b, int64_t ldb,
                                      float* c, int64_t ldc) {
  for (int64_t i = 0; i < rows; i += kBlockRows) {
    const Strided block{a.data + i * a.row_stride, a.row_stride, a.col_stride};
    multiply_block<kVectors, kAccumulate>(depth, block, b, ldb, c + i * ldc, ldc);
  }
}

template <bool kAccumulate>
__attribute__((noinline)) void multiply(int64_t rows, int64_t cols, int64_t depth, Strided a, const float* b,
                                        int64_t ldb, float* c, int64_t ldc) {
  int64_t j = 0;
  for (; j + 2 * kLanes <= cols; j += 2 * kLanes) {
    multiply_columns<2, kAccumulate>(rows, depth, a, b + j, ldb, c + j, ldc);
  }
  if (j < cols) multiply_columns<1, kAccumulate>(rows, depth, a, b + j, ldb, c + j, ldc);
}

/// C[rows, cols] (+)= A[rows, depth] B[depth, cols]; rows a multiple of kBlockRows, cols of 16.
HEADRACE_INLINE void multiply(int64_t rows, int64_t cols, int64_t depth, Strided a, const float* b,
                              int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  if (accumulate) return multiply<true>(rows, cols, depth, a, b, ldb, c, ldc);
  multiply<false>(rows, cols, depth, a, b, ldb, c, ldc);
}

/// to[c, r] = from[r, c]; rows and cols are multiples of 16.
__attribute__((noinline)) inline void transpose(int64_t rows, int64_t cols, const float* from,
                                                int64_t ld_from, float* to, int64_t ld_to) {
  for (int64_t r = 0; r < rows; r += 16) {
    for (int64_t c = 0; c < cols; c += 16) {
      for (int64_t j = 0; j < 16; ++j) {
        for (int64_t i = 0; i < 16; ++i) to[(c + j) * ld_to + r + i] = from[(r + i) * ld_from + c + j];
      }
    }
  }
}

/// rows x head_dim elements of format T to fp32, times factor, padded with
/// zeros to a kAttentionTile x padded tile.
template <class T>
HEADRACE_INLINE void load_tile(int64_t rows, int64_t head_dim, const void* from, int64_t stride, float factor,
                               float* to) {
  const int64_t padded = attention_padded(head_dim);
  for (int64_t r = 0; r < kAttentionTile; ++r) {
    float* out = to + r * padded;
    for (int64_t i = r < rows ? head_dim / kLanes * kLanes : 0; i < padded; i += kLanes)
      store(out + i, Vec{});
    if (r >= rows) continue;
    const T* in = static_cast<const T*>(from) + r * stride;
    for_vectors(head_dim, [&](int64_t i, auto lanes) { store(out + i, load(in + i, lanes) * factor); });
  }
}

/// The first rows x head_dim of a padded tile, times factor, to format T.
template <class T>
HEADRACE_INLINE void store_tile(int64_t rows, int64_t head_dim, const float* from, float factor, void* to,
                                int64_t stride) {
  const int64_t padded = attention_padded(head_dim);
  for (int64_t r = 0; r < rows; ++r) {
    T* out = static_cast<T*>(to) + r * stride;
    for_vectors(head_dim,
                [&](int64_t i, auto lanes) { store(out + i, load(from + r * padded + i) * factor, lanes); });
  }
}

}  // namespace headrace::kernels::host::HEADRACE_ISA
