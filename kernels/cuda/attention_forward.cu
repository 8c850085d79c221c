// SPDX-License-Identifier: Apache-2.0
// Flash attention, forward (Dao, "FlashAttention-2", 2023): a block attends for 128 queries of one head, a
// warp for 32 of them. Keys and values come 64 rows at a time; values are copied while scores are computed,
// the next keys while values are summed, so one buffer of each does. 64 KiB of shared memory at head_dim 128
// leave room for two blocks on an A100 and an H100. The softmax is kept in registers, in base 2; scores
// become the left operand of the second product without leaving them. Tiles after the diagonal are never
// touched and only tiles on it are masked; blocks with most tiles start first.
#include "kernels/cuda/attention_paths.h"
#include "kernels/cuda/attention_tiles.h"

namespace headrace::kernels::cuda {
namespace {

constexpr int kBlocks16 = 2;  // of queries in a warp: with two, every key and value loaded is used twice
constexpr int kQueries = 16 * kBlocks16 * kFlashWarps;
constexpr int kKeys = 64;

struct ForwardArgs {
  AttentionLayout layout;
  const bf16* qkv;
  bf16* out;
  float* lse;
};

/// Running maximum of q.k and this thread's share of the denominator, of rows g and g + 8 of every block.
struct Softmax {
  float top[kBlocks16][2], sum[kBlocks16][2];
};

__device__ __forceinline__ float max_of_four_lanes(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ __forceinline__ float sum_of_four_lanes(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

/// Maxima of the rows of s. A maximum is raised when it would grow by more than a factor of 2^kSlack, not
/// before: weights may then be as large as that, which fp32 sums and bf16 operands bear, and older sums are
/// rarely rescaled. Depends on the row alone; rows that stay are multiplied by 1.
__device__ __forceinline__ bool raise_tops(Softmax& state, float (&shrink)[kBlocks16][2],
                                           const float (&s)[kBlocks16][kKeys / 8][4], float scale2) {
  constexpr float kSlack = 8.0f;
  bool raised = false;
#pragma unroll
  for (int m = 0; m < kBlocks16; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = state.top[m][h];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) top = fmaxf(top, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
      top = max_of_four_lanes(top);
      const float growth = (top - state.top[m][h]) * scale2;
      const bool raise = growth > kSlack;
      shrink[m][h] = raise ? exp2_approx(-growth) : 1.0f;
      if (raise) state.top[m][h] = top;
      raised = raised || raise;
    }
  }
  return __any_sync(kAllLanes, raised);
}

/// s -> 2^(scale2 (s - top)), and what was summed under an older top rescaled.
template <int kDim>
__device__ __forceinline__ void softmax_step(Softmax& state, float (&s)[kBlocks16][kKeys / 8][4],
                                             float (&sum)[kBlocks16][kDim / 8][4], float scale2) {
  float shrink[kBlocks16][2];
  if (raise_tops(state, shrink, s, scale2)) {
#pragma unroll
    for (int m = 0; m < kBlocks16; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (e % 2 == 0) state.sum[m][e / 2] *= shrink[m][e / 2];
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) sum[m][n][e] *= shrink[m][e / 2];
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kBlocks16; ++m) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[m][n][e] = exp2_approx(fmaf(s[m][n][e], scale2, -state.top[m][e / 2] * scale2));
        state.sum[m][e / 2] += s[m][n][e];
      }
    }
  }
}

/// Completes the denominators: `factor` = 1 / sum, and lse (of `tile_row` 0 at `lse`) for the valid rows.
__device__ __forceinline__ void finish_softmax(const Softmax& state, float scale, float* lse, int tile_row,
                                               int valid, float (&factor)[kBlocks16][2]) {
  const int lane = lane_index();
#pragma unroll
  for (int m = 0; m < kBlocks16; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = sum_of_four_lanes(state.sum[m][h]);
      const int row = tile_row + 16 * m + 8 * h + lane / 4;
      factor[m][h] = 1.0f / total;
      if (lane % 4 == 0 && row < valid) lse[row] = state.top[m][h] * scale + logf(total);
    }
  }
}

__device__ __forceinline__ Softmax start_softmax() {
  Softmax state;
#pragma unroll
  for (int m = 0; m < kBlocks16; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      state.top[m][h] = -kInfinity;
      state.sum[m][h] = 0.0f;
    }
  }
  return state;
}

template <int kDim>
__global__ void __launch_bounds__(kFlashThreads, 2) flash_forward_kernel(ForwardArgs args) {
  const AttentionLayout& a = args.layout;
  const RowTile tile = find_tile<kQueries, true>(a, blockIdx.x / a.heads);
  if (tile.first >= tile.rows) return;
  const int head = int(blockIdx.x % a.heads), kv_head = head / (a.heads / a.kv_heads);
  bf16* queries = shared_memory<bf16>();
  bf16* keys = queries + kQueries * kDim;
  bf16* values = keys + kKeys * kDim;
  const bf16* q = args.qkv + qkv_at(a, tile.begin + tile.first, head);
  const bf16* k = args.qkv + qkv_at(a, tile.begin, a.heads + kv_head);
  const int valid = tile.rows - tile.first;
  const int row = warp_index() * 16 * kBlocks16, query = tile.first + row;
  const int end = valid < kQueries ? tile.rows : tile.first + kQueries;
  const float scale2 = a.scale * kLog2E;

  copy_tile<kDim, kQueries>(queries, q, a.qkv_stride, valid);
  copy_tile<kDim, kKeys>(keys, k, a.qkv_stride, tile.rows);
  copy_async_commit();
  float sum[kBlocks16][kDim / 8][4];
  clear(sum);
  Softmax state = start_softmax();
  copy_async_wait<0>();
  __syncthreads();
  int lane = lane_index();
  for (int key = 0; key < end; key += kKeys) {
    forget(lane);
    copy_tile<kDim, kKeys>(values, k + key * a.qkv_stride + a.kv_heads * kDim, a.qkv_stride, tile.rows - key);
    copy_async_commit();
    float s[kBlocks16][kKeys / 8][4];
    multiply_rows<kDim>(lane, s, queries, row, keys);
    copy_async_wait<0>();
    __syncthreads();
    const int next = key + kKeys;
    if (next < end) copy_tile<kDim, kKeys>(keys, k + next * a.qkv_stride, a.qkv_stride, tile.rows - next);
    copy_async_commit();
    if (key + kKeys - 1 > query) mask_causal<false>(s, query, key);
    softmax_step<kDim>(state, s, sum, scale2);
    forget(lane);
    add_weighted_rows<kDim>(lane, sum, s, values);
    copy_async_wait<0>();
    __syncthreads();
  }
  float factor[kBlocks16][2];
  finish_softmax(state, a.scale, args.lse + statistics_at(a, tile.begin, head) + tile.first, row, valid,
                 factor);
  store_rows<kDim>(sum, factor, queries, row, args.out + out_at(a, tile.begin + tile.first, head),
                   a.out_stride, valid);
}

template <int kDim>
void run(cudaStream_t stream, const ForwardArgs& args) {
  const AttentionLayout& a = args.layout;
  LaunchShape shape{dim3(blocks(tile_slots(a, kQueries) * a.heads)), dim3(kFlashThreads)};
  shape.shared_bytes = size_t(kQueries + 2 * kKeys) * kDim * sizeof(bf16);
  launch(stream, flash_forward_kernel<kDim>, shape, args);
}

}  // namespace

void flash_forward(cudaStream_t stream, const Attention& a, const bf16* qkv, bf16* out, float* lse) {
  const ForwardArgs args{layout_of(a), qkv, out, lse};
  if (a.head_dim == 64) return run<64>(stream, args);
  if (a.head_dim == 96) return run<96>(stream, args);
  run<128>(stream, args);
}

}  // namespace headrace::kernels::cuda
