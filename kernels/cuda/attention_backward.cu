// SPDX-License-Identifier: Apache-2.0
// Flash attention, backward (Dao, "FlashAttention-2", 2023), without atomics: with P = exp(scale S - lse),
//   S = Q K^T    dP = dO V^T    dS = P (dP - delta)    dV = P^T dO    dK = scale dS^T Q    dQ = scale dS K
// one kernel owns 64 keys and sums dK, dV over the queries that see them (4 products: S^T, dP^T and the two
// sums), the other owns 128 queries and sums dQ over their keys (3 products: S and dP again). That is
// 14 head_dim FLOP for a query and a key it sees, not the 10 of a single kernel. The other way to a fixed
// order, fp32 partial sums of dQ in global memory, saves the 4 but moves 16 bytes per element of dQ and tile
// of keys, about 2 TB/s for an H100 kept busy, leaves fewer blocks than SMs at small batches, and sends dS
// through shared memory; here P and dS never leave registers, blocks share nothing, and scratch is delta
// alone. The query heads of a group are summed one after another inside the block that owns the keys.
#include "kernels/cuda/attention_paths.h"
#include "kernels/cuda/attention_tiles.h"

namespace headrace::kernels::cuda {
namespace {

struct BackwardArgs {
  AttentionLayout layout;
  const bf16* qkv;
  const float* lse;
  const float* delta;
  const bf16* dout;
  bf16* dqkv;
};

// dQ: a block owns 128 queries, a warp 32 of them, and passes over 32 keys at a time, in two buffers.

constexpr int kBlocks16 = 2;
constexpr int kQueries = 16 * kBlocks16 * kFlashWarps;
constexpr int kFewKeys = 32;

/// lse in base 2, and delta, of rows g and g + 8 of every block.
struct RowStatistics {
  float lse2[kBlocks16][2], delta[kBlocks16][2];
};

/// A row that is not there has probability 0 everywhere.
__device__ __forceinline__ RowStatistics load_row_statistics(const float* lse, const float* delta, int row,
                                                             int valid) {
  RowStatistics rows;
#pragma unroll
  for (int m = 0; m < kBlocks16; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = row + 16 * m + 8 * h + lane_index() / 4;
      rows.lse2[m][h] = at < valid ? lse[at] * kLog2E : kInfinity;
      rows.delta[m][h] = at < valid ? delta[at] : 0.0f;
    }
  }
  return rows;
}

/// dp -> dS.
__device__ __forceinline__ void scores_backward(const RowStatistics& rows,
                                                const float (&s)[kBlocks16][kFewKeys / 8][4],
                                                float (&dp)[kBlocks16][kFewKeys / 8][4], float scale2) {
#pragma unroll
  for (int m = 0; m < kBlocks16; ++m) {
#pragma unroll
    for (int n = 0; n < kFewKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float p = exp2_approx(fmaf(s[m][n][e], scale2, -rows.lse2[m][e / 2]));
        dp[m][n][e] = p * (dp[m][n][e] - rows.delta[m][e / 2]);
      }
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kFlashThreads, 2) flash_dq_kernel(BackwardArgs args) {
  const AttentionLayout& a = args.layout;
  const RowTile tile = find_tile<kQueries, true>(a, blockIdx.x / a.heads);
  if (tile.first >= tile.rows) return;
  const int head = int(blockIdx.x % a.heads), kv_head = head / (a.heads / a.kv_heads);
  bf16* queries = shared_memory<bf16>();
  bf16* douts = queries + kQueries * kDim;
  bf16* keys = douts + kQueries * kDim;       // two buffers
  bf16* values = keys + 2 * kFewKeys * kDim;  // two buffers
  const int64_t first_row = tile.begin + tile.first;
  const bf16* k = args.qkv + qkv_at(a, tile.begin, a.heads + kv_head);
  const int v_after_k = a.kv_heads * kDim;
  const int valid = tile.rows - tile.first;
  const int row = warp_index() * 16 * kBlocks16, query = tile.first + row;
  const int end = valid < kQueries ? tile.rows : tile.first + kQueries;

  copy_tile<kDim, kQueries>(queries, args.qkv + qkv_at(a, first_row, head), a.qkv_stride, valid);
  copy_tile<kDim, kQueries>(douts, args.dout + out_at(a, first_row, head), a.out_stride, valid);
  copy_tile<kDim, kFewKeys>(keys, k, a.qkv_stride, tile.rows);
  copy_tile<kDim, kFewKeys>(values, k + v_after_k, a.qkv_stride, tile.rows);
  copy_async_commit();
  const int64_t at = statistics_at(a, tile.begin, head) + tile.first;
  const RowStatistics rows = load_row_statistics(args.lse + at, args.delta + at, row, valid);
  float sum[kBlocks16][kDim / 8][4];
  clear(sum);
  int lane = lane_index();
  for (int key = 0; key < end; key += kFewKeys) {
    forget(lane);
    const int next = key + kFewKeys;
    // Once every warp is here the other buffer is free.
    copy_async_wait<0>();
    __syncthreads();
    if (next < end) {
      const int other = next / kFewKeys % 2 * kFewKeys * kDim;
      copy_tile<kDim, kFewKeys>(keys + other, k + next * a.qkv_stride, a.qkv_stride, tile.rows - next);
      copy_tile<kDim, kFewKeys>(values + other, k + next * a.qkv_stride + v_after_k, a.qkv_stride,
                                tile.rows - next);
    }
    copy_async_commit();
    if (key >= query + 16 * kBlocks16) continue;
    const int buffer = key / kFewKeys % 2 * kFewKeys * kDim;
    float s[kBlocks16][kFewKeys / 8][4], ds[kBlocks16][kFewKeys / 8][4];
    multiply_rows<kDim>(lane, s, queries, row, keys + buffer);
    multiply_rows<kDim>(lane, ds, douts, row, values + buffer);
    if (key + kFewKeys - 1 > query) mask_causal<false>(s, query, key);
    scores_backward(rows, s, ds, a.scale * kLog2E);
    add_weighted_rows<kDim>(lane, sum, ds, keys + buffer);
  }
  const float factor[kBlocks16][2] = {{a.scale, a.scale}, {a.scale, a.scale}};
  store_rows<kDim>(sum, factor, queries, row, args.dqkv + qkv_at(a, first_row, head), a.qkv_stride, valid);
}

// dK, dV: a block owns 64 keys, a warp 16 of them, and passes over 64 queries at a time, in two buffers.
// Scores are computed transposed, so that they are left operands as they are.

constexpr int kKeys = 64;
constexpr int kFewQueries = 64;

/// One step of the pass: a tile of queries of one head of the group.
struct QueryTile {
  int head, first;
};
__device__ __forceinline__ QueryTile after(const QueryTile& step, const RowTile& keys) {
  if (step.first + kFewQueries < keys.rows) return {step.head, step.first + kFewQueries};
  return {step.head + 1, keys.first};
}

template <int kDim>
__device__ __forceinline__ void copy_queries(const BackwardArgs& args, const RowTile& tile,
                                             const QueryTile& step, bf16* queries, bf16* douts) {
  const AttentionLayout& a = args.layout;
  const int64_t row = tile.begin + step.first;
  const int valid = tile.rows - step.first;
  copy_tile<kDim, kFewQueries>(queries, args.qkv + qkv_at(a, row, step.head), a.qkv_stride, valid);
  copy_tile<kDim, kFewQueries>(douts, args.dout + out_at(a, row, step.head), a.out_stride, valid);
}

/// What this thread brings of a step's statistics, [lse in base 2 of 64 queries | delta of 64 queries].
/// `first_at`: where the document's first row is in head 0.
__device__ __forceinline__ float load_statistic(const BackwardArgs& args, const RowTile& tile,
                                                const QueryTile& step, int64_t first_at) {
  const int query = step.first + int(threadIdx.x) % kFewQueries;
  const bool is_lse = threadIdx.x < kFewQueries;
  if (query >= tile.rows) return is_lse ? kInfinity : 0.0f;
  const int64_t at = first_at + int64_t(step.head) * args.layout.seq + query;
  return is_lse ? args.lse[at] * kLog2E : args.delta[at];
}

/// s -> P and dp -> dS, transposed: queries are columns.
__device__ __forceinline__ void transposed_scores_backward(const float* statistics,
                                                           float (&s)[1][kFewQueries / 8][4],
                                                           float (&dp)[1][kFewQueries / 8][4], float scale2) {
#pragma unroll
  for (int n = 0; n < kFewQueries / 8; ++n) {
    const int query = 8 * n + lane_index() % 4 * 2;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float lse2 = statistics[query + e % 2], delta = statistics[kFewQueries + query + e % 2];
      s[0][n][e] = exp2_approx(fmaf(s[0][n][e], scale2, -lse2));
      dp[0][n][e] = s[0][n][e] * (dp[0][n][e] - delta);
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kFlashThreads, 2) flash_dkv_kernel(BackwardArgs args) {
  static_assert(kFlashThreads == 2 * kFewQueries && kKeys == 16 * kFlashWarps);
  const AttentionLayout& a = args.layout;
  const RowTile tile = find_tile<kKeys, false>(a, blockIdx.x / a.kv_heads);
  if (tile.first >= tile.rows) return;
  const int kv_head = int(blockIdx.x % a.kv_heads), group = a.heads / a.kv_heads;
  bf16* keys = shared_memory<bf16>();
  bf16* values = keys + kKeys * kDim;
  bf16* queries = values + kKeys * kDim;           // two buffers
  bf16* douts = queries + 2 * kFewQueries * kDim;  // two buffers
  float* statistics = reinterpret_cast<float*>(douts + 2 * kFewQueries * kDim);
  const int64_t k_at = qkv_at(a, tile.begin + tile.first, a.heads + kv_head);
  const int64_t v_at = qkv_at(a, tile.begin + tile.first, a.heads + a.kv_heads + kv_head);
  const int64_t first_at = statistics_at(a, tile.begin, 0);
  const int valid = tile.rows - tile.first, row = warp_index() * 16;
  const int end = (kv_head + 1) * group;

  QueryTile now{kv_head * group, tile.first};
  copy_tile<kDim, kKeys>(keys, args.qkv + k_at, a.qkv_stride, valid);
  copy_tile<kDim, kKeys>(values, args.qkv + v_at, a.qkv_stride, valid);
  copy_queries<kDim>(args, tile, now, queries, douts);
  copy_async_commit();
  statistics[threadIdx.x] = load_statistic(args, tile, now, first_at);
  float dk[1][kDim / 8][4], dv[1][kDim / 8][4];
  clear(dk);
  clear(dv);
  int lane = lane_index();
  for (int buffer = 0; now.head < end; buffer = 1 - buffer) {
    forget(lane);
    const int other = 1 - buffer;
    // Once every warp is here the other buffer is free.
    copy_async_wait<0>();
    __syncthreads();
    const QueryTile next = after(now, tile);
    float next_statistic = 0.0f;
    if (next.head < end) {
      copy_queries<kDim>(args, tile, next, queries + other * kFewQueries * kDim,
                         douts + other * kFewQueries * kDim);
      next_statistic = load_statistic(args, tile, next, first_at);
    }
    copy_async_commit();
    const bf16* q = queries + buffer * kFewQueries * kDim;
    const bf16* dout = douts + buffer * kFewQueries * kDim;
    float s[1][kFewQueries / 8][4], ds[1][kFewQueries / 8][4];
    multiply_rows<kDim>(lane, s, keys, row, q);
    multiply_rows<kDim>(lane, ds, values, row, dout);
    if (tile.first + kKeys - 1 > now.first) mask_causal<true>(s, now.first, tile.first + row);
    transposed_scores_backward(statistics + buffer * kFlashThreads, s, ds, a.scale * kLog2E);
    add_weighted_rows<kDim>(lane, dv, s, dout);
    add_weighted_rows<kDim>(lane, dk, ds, q);
    statistics[other * kFlashThreads + int(threadIdx.x)] = next_statistic;
    now = next;
  }
  const float scale[1][2] = {{a.scale, a.scale}}, one[1][2] = {{1.0f, 1.0f}};
  store_rows<kDim>(dk, scale, keys, row, args.dqkv + k_at, a.qkv_stride, valid);
  store_rows<kDim>(dv, one, values, row, args.dqkv + v_at, a.qkv_stride, valid);
}

template <int kDim>
void run(cudaStream_t stream, const BackwardArgs& args) {
  const AttentionLayout& a = args.layout;
  LaunchShape dkv{dim3(blocks(tile_slots(a, kKeys) * a.kv_heads)), dim3(kFlashThreads)};
  dkv.shared_bytes =
      size_t(2 * kKeys + 4 * kFewQueries) * kDim * sizeof(bf16) + 2 * kFlashThreads * sizeof(float);
  launch(stream, flash_dkv_kernel<kDim>, dkv, args);
  LaunchShape dq{dim3(blocks(tile_slots(a, kQueries) * a.heads)), dim3(kFlashThreads)};
  dq.shared_bytes = size_t(2 * kQueries + 4 * kFewKeys) * kDim * sizeof(bf16);
  launch(stream, flash_dq_kernel<kDim>, dq, args);
}

}  // namespace

void flash_backward(cudaStream_t stream, const Attention& a, const bf16* qkv, const float* lse,
                    const float* delta, const bf16* dout, bf16* dqkv) {
  const BackwardArgs args{layout_of(a), qkv, lse, delta, dout, dqkv};
  if (a.head_dim == 64) return run<64>(stream, args);
  if (a.head_dim == 96) return run<96>(stream, args);
  run<128>(stream, args);
}

}  // namespace headrace::kernels::cuda
