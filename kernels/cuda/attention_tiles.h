// SPDX-License-Identifier: Apache-2.0
// Tiles of the flash kernels: rows of one head in shared memory, the products of tiles on tensor cores, and
// what happens to a tile of scores in registers. Used by attention_forward.cu and attention_backward.cu.
//
// A tile in shared memory is [rows][kDim] bf16, cut into chunks of 16 bytes that are stored out of order so
// that the same chunk of 8 consecutive rows, which one matrix load reads, lies in 8 different groups of
// banks:
//   rows of 128 or 256 bytes: chunk c of row r is at c ^ (r % 8)
//   rows of 192 bytes: already two groups apart by the parity of r, so c ^ (r / 2 % 4) does
// Accumulators are arrays [m][n][4] of 16x8 blocks, in the order of multiply_add_16x8x16: with g = lane / 4
// and t = lane % 4, element 2 h + e of a block is (g + 8 h, 2 t + e).
#pragma once

#include "kernels/cuda/attention_layout.h"
#include "kernels/cuda/port.h"

namespace headrace::kernels::cuda {

constexpr int kFlashWarps = 4;
constexpr int kFlashThreads = kFlashWarps * kWarp;
constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kInfinity = __builtin_inff();

/// The element at which a chunk of a row is stored. Only row % 8 counts for the order of chunks.
template <int kDim>
__device__ __forceinline__ int chunk_at(int row, int chunk) {
  static_assert(kDim == 64 || kDim == 96 || kDim == 128);
  const int place = kDim == 96 ? chunk ^ (row / 2 % 4) : chunk ^ (row % 8);
  return row * kDim + place * 8;
}

/// Starts the copy of kRows rows; rows from `valid` on become zero. `from`: the first row, `stride` elements
/// from row to row. A thread keeps its place among the chunks and goes from row to row, which leaves one
/// address to keep.
template <int kDim, int kRows>
__device__ __forceinline__ void copy_tile(bf16* tile, const bf16* from, int64_t stride, int valid) {
  constexpr int kLanes = kDim == 96 ? 4 : 8, kPass = kFlashThreads / kLanes;
  static_assert(kRows % kPass == 0 && kPass % 8 == 0);
  int thread = int(threadIdx.x);
  forget(thread);
  const int row = thread / kLanes, chunk = thread % kLanes;
  from += row * stride + chunk * 8;
#pragma unroll
  for (int pass = 0; pass < kRows; pass += kPass, from += kPass * stride) {
#pragma unroll
    for (int next = 0; next < kDim / 8; next += kLanes) {
      copy_async_16(tile + pass * kDim + chunk_at<kDim>(row, chunk + next), from + next * 8,
                    row + pass < valid);
    }
  }
}

/// Left operand: elements [row, row + 16) x [8 chunk, 8 chunk + 16). `row` is a multiple of 8, as below.
template <int kDim>
__device__ __forceinline__ void load_left(int lane, uint32_t (&a)[4], const bf16* tile, int row, int chunk) {
  load_matrices(a, tile + row * kDim + chunk_at<kDim>(lane % 16, chunk + lane / 16));
}
/// Right operand whose columns are rows [row, row + 16) of the tile: two blocks of 8 columns.
template <int kDim>
__device__ __forceinline__ void load_right_columns(int lane, uint32_t (&b)[4], const bf16* tile, int row,
                                                   int chunk) {
  const int tile_row = lane % 8 + lane / 16 * 8;
  load_matrices(b, tile + row * kDim + chunk_at<kDim>(tile_row, chunk + lane / 8 % 2));
}
/// Right operand whose rows are rows [row, row + 16) of the tile: two blocks of 8 columns.
template <int kDim>
__device__ __forceinline__ void load_right_rows(int lane, uint32_t (&b)[4], const bf16* tile, int row,
                                                int chunk) {
  load_matrices_transposed(b, tile + row * kDim + chunk_at<kDim>(lane % 16, chunk + lane / 16));
}

template <int kM, int kN>
__device__ __forceinline__ void clear(float (&x)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[m][n][e] = 0.0f;
    }
  }
}

/// s[16 kM, 8 kN] = rows of `left` from left_row on, times rows of `right` from 0 on, transposed.
template <int kDim, int kM, int kN>
__device__ __forceinline__ void multiply_rows(int lane, float (&s)[kM][kN][4], const bf16* left, int left_row,
                                              const bf16* right) {
  clear(s);
#pragma unroll
  for (int chunk = 0; chunk < kDim / 8; chunk += 2) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) load_left<kDim>(lane, a[m], left, left_row + 16 * m, chunk);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t b[4];
      load_right_columns<kDim>(lane, b, right, 8 * n, chunk);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add_16x8x16(s[m][n], a[m], b[0], b[1]);
        multiply_add_16x8x16(s[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// sum[16 kM, kDim] += w[16 kM, 8 kN] (rounded to bf16) times the first 8 kN rows of `right`.
template <int kDim, int kM, int kN>
__device__ __forceinline__ void add_weighted_rows(int lane, float (&sum)[kM][kDim / 8][4],
                                                  const float (&w)[kM][kN][4], const bf16* right) {
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      a[m][0] = pack_bf16(w[m][n][0], w[m][n][1]);
      a[m][1] = pack_bf16(w[m][n][2], w[m][n][3]);
      a[m][2] = pack_bf16(w[m][n + 1][0], w[m][n + 1][1]);
      a[m][3] = pack_bf16(w[m][n + 1][2], w[m][n + 1][3]);
    }
#pragma unroll
    for (int chunk = 0; chunk < kDim / 8; chunk += 2) {
      uint32_t b[4];
      load_right_rows<kDim>(lane, b, right, 8 * n, chunk);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add_16x8x16(sum[m][chunk], a[m], b[0], b[1]);
        multiply_add_16x8x16(sum[m][chunk + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// Hides keys after the query. Element (i, j) of s belongs to query `query` + i and key `key` + j; with
/// kTransposed to key `key` + i and query `query` + j.
template <bool kTransposed, int kM, int kN>
__device__ __forceinline__ void mask_causal(float (&s)[kM][kN][4], int query, int key) {
  const int group = lane_index() / 4, pair = lane_index() % 4 * 2;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = 16 * m + group + e / 2 * 8, column = 8 * n + pair + e % 2;
        const bool hidden = kTransposed ? key + row > query + column : key + column > query + row;
        if (hidden) s[m][n][e] = -kInfinity;
      }
    }
  }
}

/// Writes sum[m] * factor[m][h], rounded, as rows of a head in global memory: `to` is the row of tile row 0,
/// rows from `valid` on are left out. Passes through rows [row, row + 16 kM) of a tile that no other warp
/// reads any more, so that global memory sees 16 bytes of each lane.
template <int kDim, int kM>
__device__ __forceinline__ void store_rows(const float (&sum)[kM][kDim / 8][4], const float (&factor)[kM][2],
                                           bf16* tile, int row, bf16* to, int64_t stride, int valid) {
  const int lane = lane_index();
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = chunk_at<kDim>(row + 16 * m + lane / 4 + 8 * h, n) + lane % 4 * 2;
        *reinterpret_cast<uint32_t*>(tile + at) =
            pack_bf16(sum[m][n][2 * h] * factor[m][h], sum[m][n][2 * h + 1] * factor[m][h]);
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kDim / 8;
#pragma unroll 4
  for (int i = lane; i < 16 * kM * kChunks; i += kWarp) {
    const int at = row + i / kChunks, chunk = i % kChunks;
    if (at < valid) {
      store_pack(to + at * stride + chunk * 8, load_pack(tile + chunk_at<kDim>(at, chunk)));
    }
  }
}

}  // namespace headrace::kernels::cuda
