// SPDX-License-Identifier: Apache-2.0
// Which rows a block of the attention kernels works on. Every document is cut into tiles of its own, counted
// from its first row: a tile never holds rows of two documents, so what lies in the others cannot leak into
// it, and a document's results have the same bits whether it is packed or alone. Shared by the flash and the
// plain path.
#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/port.h"

namespace headrace::kernels::cuda {

__device__ __forceinline__ int lane_index() {
  return int(threadIdx.x) % kWarp;
}
__device__ __forceinline__ int warp_index() {
  return int(threadIdx.x) / kWarp;
}

/// What a kernel knows of an Attention. Without `begins` document d is rows [d seq, (d+1) seq).
struct AttentionLayout {
  const int32_t* begins;
  int32_t documents, seq, heads, kv_heads, head_dim;
  int64_t rows, qkv_stride, out_stride;  ///< strides: elements from row to row
  float scale;
};

inline AttentionLayout layout_of(const Attention& a) {
  const int64_t documents = a.cu_seqlens ? a.documents : a.batch;
  return {a.cu_seqlens,         int32_t(documents),
          int32_t(a.seq),       int32_t(a.heads),
          int32_t(a.kv_heads),  int32_t(a.head_dim),
          a.batch * a.seq,      (a.heads + 2 * a.kv_heads) * a.head_dim,
          a.heads * a.head_dim, a.scale};
}

/// Tiles are reached through numbered slots. The lengths of packed documents are known on the device only,
/// so document d owns the slots from begins[d] / tile_rows + d on, which is always enough:
///   floor((b + n) / t) + 1 >= floor(b / t) + ceil(n / t)
/// and a slot without a tile ends its block at once.
__host__ __device__ __forceinline__ int64_t tile_slots(const AttentionLayout& a, int64_t tile_rows) {
  if (a.begins) return a.rows / tile_rows + a.documents;
  return (a.seq + tile_rows - 1) / tile_rows * a.documents;
}

/// A tile of one document; `rows` is 0 where there is none.
struct RowTile {
  int64_t begin;  ///< the document's first row, counted over all rows
  int rows;       ///< of the document
  int first;      ///< the tile's first row, counted from `begin`
};

/// The last document that owns slots up to `slot`.
template <int kTileRows>
__device__ __forceinline__ int document_of(const AttentionLayout& a, int64_t slot) {
  int low = 0, high = a.documents - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (int64_t(a.begins[middle]) / kTileRows + middle <= slot) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// Descending: the tiles at the end of the documents come first.
template <int kTileRows, bool kDescending>
__device__ __forceinline__ RowTile find_tile(const AttentionLayout& a, int64_t slot) {
  if (kDescending) slot = tile_slots(a, kTileRows) - 1 - slot;
  if (!a.begins) {
    return {slot % a.documents * a.seq, a.seq, int(slot / a.documents) * kTileRows};
  }
  const int document = document_of<kTileRows>(a, slot);
  const int64_t begin = a.begins[document], end = a.begins[document + 1];
  const int64_t first = (slot - (begin / kTileRows + document)) * kTileRows;
  return {begin, first < end - begin ? int(end - begin) : 0, int(first)};
}

/// Where (row `begin` of all rows, query head) is in lse and delta.
__device__ __forceinline__ int64_t statistics_at(const AttentionLayout& a, int64_t begin, int head) {
  const int64_t batch = begin / a.seq;
  return (batch * a.heads + head) * a.seq + (begin - batch * a.seq);
}

/// Where a row's q, k or v of one head begins; `slot` counts heads: q heads, then k heads, then v heads.
__device__ __forceinline__ int64_t qkv_at(const AttentionLayout& a, int64_t row, int slot) {
  return row * a.qkv_stride + int64_t(slot) * a.head_dim;
}
__device__ __forceinline__ int64_t out_at(const AttentionLayout& a, int64_t row, int head) {
  return row * a.out_stride + int64_t(head) * a.head_dim;
}

}  // namespace headrace::kernels::cuda
