// SPDX-License-Identifier: Apache-2.0
// Attention without tensor cores: fp32 arithmetic for either format and any head_dim up to 256, and the delta
// both paths need. Like the flash path it passes over tiles with a running softmax and makes scores again in
// the backward pass, one kernel for dK and dV and one for dQ; memory is linear in the sequence length. For
// checking at fp32 accuracy and for unusual head dimensions, not for speed.
//
// All kernels have one form: a block of 8 warps owns a few rows (queries, or keys) per warp and passes over
// tiles of 32 others. For scores a lane takes one of the others; for weighted sums it takes every 32nd
// column. Templates: kRows owned by a warp, heads of at most 32 kColumns columns.
#include "kernels/cuda/attention_layout.h"
#include "kernels/cuda/attention_paths.h"

namespace headrace::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kOthers = kWarp;

struct PlainArgs {
  AttentionLayout layout;
  const void* qkv;
  void* out;
  float* lse;
  const float* delta;
  const void* dout;
  void* dqkv;
};

/// Rows of a tile are one element longer than a head: lanes that read a column meet no bank twice.
__host__ __device__ __forceinline__ int row_floats(int head_dim) {
  return head_dim + 1;
}

/// Copies `rows` rows of a head into a tile as fp32; rows from `valid` on become zero.
template <class T>
__device__ void load_rows(float* tile, int rows, int head_dim, const T* from, int64_t stride, int valid) {
  for (int row = warp_index(); row < rows; row += kWarps) {
    for (int c = lane_index(); c < head_dim; c += kWarp) {
      tile[row * row_floats(head_dim) + c] = row < valid ? widen(from[row * stride + c]) : 0.0f;
    }
  }
}

/// s[r] = row r of `own` times this lane's row of `others`.
template <int kRows>
__device__ __forceinline__ void scores(float (&s)[kRows], const float* own, const float* others,
                                       int head_dim) {
  const float* other = others + lane_index() * row_floats(head_dim);
#pragma unroll
  for (int r = 0; r < kRows; ++r) s[r] = 0.0f;
  for (int c = 0; c < head_dim; ++c) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) s[r] = fmaf(own[r * row_floats(head_dim) + c], other[c], s[r]);
  }
}

/// sum[r] += sum over the others of weights[r][other] * other. `weights`: shared, [kRows][kOthers].
template <int kRows, int kColumns>
__device__ __forceinline__ void add_weighted(float (&sum)[kRows][kColumns], const float* weights,
                                             const float* others, int head_dim) {
  for (int other = 0; other < kOthers; ++other) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int c = lane_index() + i * kWarp;
      const float x = c < head_dim ? others[other * row_floats(head_dim) + c] : 0.0f;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[r][i] = fmaf(weights[r * kOthers + other], x, sum[r][i]);
    }
  }
}

/// Gives a warp's weights to all its lanes.
template <int kRows>
__device__ __forceinline__ void share_weights(float* shared, const float (&weights)[kRows]) {
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kRows; ++r) shared[r * kOthers + lane_index()] = weights[r];
  __syncwarp();
}

template <class T, int kRows, int kColumns>
__device__ __forceinline__ void store_sums(const float (&sum)[kRows][kColumns], const float (&factor)[kRows],
                                           T* to, int64_t stride, int head_dim, int valid) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int c = lane_index() + i * kWarp;
      if (r < valid && c < head_dim) to[r * stride + c] = narrow<T>(sum[r][i] * factor[r]);
    }
  }
}

template <int kRows, int kColumns>
__device__ __forceinline__ void clear(float (&sum)[kRows][kColumns]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum[r][i] = 0.0f;
  }
}

/// Shared memory of a block: rows it owns, up to two kinds; the others, up to two kinds; weights.
struct Areas {
  float *own[2], *others[2], *weights;  ///< own and weights: of this thread's warp from its first row on
  float* own_tile[2];
};
__device__ __forceinline__ Areas cut_areas(int own_rows, int head_dim) {
  float* next = shared_memory<float>();
  Areas areas;
  const int warp_rows = own_rows / kWarps;
  for (int kind = 0; kind < 2; ++kind) {
    areas.own_tile[kind] = next;
    areas.own[kind] = next + warp_index() * warp_rows * row_floats(head_dim);
    next += own_rows * row_floats(head_dim);
  }
  for (float*& others : areas.others) {
    others = next;
    next += kOthers * row_floats(head_dim);
  }
  areas.weights = next + warp_index() * warp_rows * kOthers;
  return areas;
}
size_t area_bytes(int own_rows, int head_dim) {
  return sizeof(float) * size_t(2 * (own_rows + kOthers) * row_floats(head_dim) + own_rows * kOthers);
}

/// A running softmax over tiles of keys: scores -> weights under the new maximum.
template <int kRows, int kColumns>
__device__ __forceinline__ void softmax_step(float (&top)[kRows], float (&total)[kRows], float (&s)[kRows],
                                             float (&sum)[kRows][kColumns]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float before = top[r];
    top[r] = fmaxf(before, warp_max(s[r]));
    const float shrink = expf(before - top[r]);
    s[r] = expf(s[r] - top[r]);
    total[r] = fmaf(total[r], shrink, warp_sum(s[r]));
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum[r][i] *= shrink;
  }
}

template <class T, int kRows, int kColumns>
__global__ void __launch_bounds__(kThreads, 1) plain_forward_kernel(PlainArgs args) {
  constexpr int kOwn = kRows * kWarps;
  const AttentionLayout& a = args.layout;
  const RowTile tile = find_tile<kOwn, true>(a, blockIdx.x / a.heads);
  if (tile.first >= tile.rows) return;
  const int head = int(blockIdx.x % a.heads), kv_head = head / (a.heads / a.kv_heads);
  const Areas areas = cut_areas(kOwn, a.head_dim);
  const T* qkv = static_cast<const T*>(args.qkv);
  const T* k = qkv + qkv_at(a, tile.begin, a.heads + kv_head);
  const T* v = qkv + qkv_at(a, tile.begin, a.heads + a.kv_heads + kv_head);
  const int valid = tile.rows - tile.first, query = tile.first + warp_index() * kRows;
  const int end = valid < kOwn ? tile.rows : tile.first + kOwn;
  load_rows(areas.own_tile[0], kOwn, a.head_dim, qkv + qkv_at(a, tile.begin + tile.first, head), a.qkv_stride,
            valid);
  float top[kRows], total[kRows], sum[kRows][kColumns];
  clear(sum);
  for (int r = 0; r < kRows; ++r) {
    top[r] = -__builtin_inff();
    total[r] = 0.0f;
  }
  for (int first_key = 0; first_key < end; first_key += kOthers) {
    const int rows = tile.rows - first_key;
    __syncthreads();
    load_rows(areas.others[0], kOthers, a.head_dim, k + first_key * a.qkv_stride, a.qkv_stride, rows);
    load_rows(areas.others[1], kOthers, a.head_dim, v + first_key * a.qkv_stride, a.qkv_stride, rows);
    __syncthreads();
    float s[kRows];
    scores(s, areas.own[0], areas.others[0], a.head_dim);
    for (int r = 0; r < kRows; ++r) {
      s[r] = first_key + lane_index() <= query + r ? s[r] * a.scale : -__builtin_inff();
    }
    softmax_step(top, total, s, sum);
    share_weights(areas.weights, s);
    add_weighted(sum, areas.weights, areas.others[1], a.head_dim);
  }
  float* lse = args.lse + statistics_at(a, tile.begin, head) + query;
  for (int r = 0; r < kRows; ++r) {
    if (lane_index() == 0 && query + r < tile.rows) lse[r] = top[r] + logf(total[r]);
    total[r] = 1.0f / total[r];
  }
  store_sums(sum, total, static_cast<T*>(args.out) + out_at(a, tile.begin + query, head), a.out_stride,
             a.head_dim, tile.rows - query);
}

template <class T, int kRows, int kColumns>
__global__ void __launch_bounds__(kThreads, 1) plain_dq_kernel(PlainArgs args) {
  constexpr int kOwn = kRows * kWarps;
  const AttentionLayout& a = args.layout;
  const RowTile tile = find_tile<kOwn, true>(a, blockIdx.x / a.heads);
  if (tile.first >= tile.rows) return;
  const int head = int(blockIdx.x % a.heads), kv_head = head / (a.heads / a.kv_heads);
  const Areas areas = cut_areas(kOwn, a.head_dim);
  const T* qkv = static_cast<const T*>(args.qkv);
  const T* k = qkv + qkv_at(a, tile.begin, a.heads + kv_head);
  const T* v = qkv + qkv_at(a, tile.begin, a.heads + a.kv_heads + kv_head);
  const int64_t first_row = tile.begin + tile.first;
  const int valid = tile.rows - tile.first, query = tile.first + warp_index() * kRows;
  const int end = valid < kOwn ? tile.rows : tile.first + kOwn;
  load_rows(areas.own_tile[0], kOwn, a.head_dim, qkv + qkv_at(a, first_row, head), a.qkv_stride, valid);
  load_rows(areas.own_tile[1], kOwn, a.head_dim,
            static_cast<const T*>(args.dout) + out_at(a, first_row, head), a.out_stride, valid);
  const int64_t statistics = statistics_at(a, tile.begin, head) + query;
  float lse[kRows], delta[kRows], factor[kRows], sum[kRows][kColumns];
  clear(sum);
  for (int r = 0; r < kRows; ++r) {
    const bool inside = query + r < tile.rows;
    lse[r] = inside ? args.lse[statistics + r] : __builtin_inff();
    delta[r] = inside ? args.delta[statistics + r] : 0.0f;
    factor[r] = a.scale;
  }
  for (int first_key = 0; first_key < end; first_key += kOthers) {
    const int rows = tile.rows - first_key;
    __syncthreads();
    load_rows(areas.others[0], kOthers, a.head_dim, k + first_key * a.qkv_stride, a.qkv_stride, rows);
    load_rows(areas.others[1], kOthers, a.head_dim, v + first_key * a.qkv_stride, a.qkv_stride, rows);
    __syncthreads();
    float s[kRows], ds[kRows];
    scores(s, areas.own[0], areas.others[0], a.head_dim);
    scores(ds, areas.own[1], areas.others[1], a.head_dim);
    for (int r = 0; r < kRows; ++r) {
      const bool seen = first_key + lane_index() <= query + r;
      ds[r] = seen ? expf(s[r] * a.scale - lse[r]) * (ds[r] - delta[r]) : 0.0f;
    }
    share_weights(areas.weights, ds);
    add_weighted(sum, areas.weights, areas.others[0], a.head_dim);
  }
  store_sums(sum, factor, static_cast<T*>(args.dqkv) + qkv_at(a, tile.begin + query, head), a.qkv_stride,
             a.head_dim, tile.rows - query);
}

/// What the 32 queries of one tile of one head add to the gradients of a warp's keys, from `key` on.
template <int kRows, int kColumns>
__device__ __forceinline__ void add_queries(const PlainArgs& args, const RowTile& tile, const Areas& areas,
                                            int head, int first_query, int key, float (&dk)[kRows][kColumns],
                                            float (&dv)[kRows][kColumns]) {
  const AttentionLayout& a = args.layout;
  const int query = first_query + lane_index();
  const int64_t at = statistics_at(a, tile.begin, head) + query;
  const float lse = query < tile.rows ? args.lse[at] : __builtin_inff();
  const float delta = query < tile.rows ? args.delta[at] : 0.0f;
  float p[kRows], ds[kRows];
  scores(p, areas.own[0], areas.others[0], a.head_dim);
  scores(ds, areas.own[1], areas.others[1], a.head_dim);
  for (int r = 0; r < kRows; ++r) {
    p[r] = key + r <= query ? expf(p[r] * a.scale - lse) : 0.0f;
    ds[r] = p[r] * (ds[r] - delta);
  }
  share_weights(areas.weights, p);
  add_weighted(dv, areas.weights, areas.others[1], a.head_dim);
  share_weights(areas.weights, ds);
  add_weighted(dk, areas.weights, areas.others[0], a.head_dim);
}

template <class T, int kRows, int kColumns>
__global__ void __launch_bounds__(kThreads, 1) plain_dkv_kernel(PlainArgs args) {
  constexpr int kOwn = kRows * kWarps;
  const AttentionLayout& a = args.layout;
  const RowTile tile = find_tile<kOwn, false>(a, blockIdx.x / a.kv_heads);
  if (tile.first >= tile.rows) return;
  const int kv_head = int(blockIdx.x % a.kv_heads), group = a.heads / a.kv_heads;
  const Areas areas = cut_areas(kOwn, a.head_dim);
  const T* qkv = static_cast<const T*>(args.qkv);
  const T* dout = static_cast<const T*>(args.dout);
  const int k_slot = a.heads + kv_head, v_slot = k_slot + a.kv_heads;
  const int64_t first_row = tile.begin + tile.first;
  const int valid = tile.rows - tile.first, key = tile.first + warp_index() * kRows;
  load_rows(areas.own_tile[0], kOwn, a.head_dim, qkv + qkv_at(a, first_row, k_slot), a.qkv_stride, valid);
  load_rows(areas.own_tile[1], kOwn, a.head_dim, qkv + qkv_at(a, first_row, v_slot), a.qkv_stride, valid);
  float dk[kRows][kColumns], dv[kRows][kColumns], scale[kRows], one[kRows];
  clear(dk);
  clear(dv);
  for (int r = 0; r < kRows; ++r) {
    scale[r] = a.scale;
    one[r] = 1.0f;
  }
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int query = tile.first; query < tile.rows; query += kOthers) {
      const int64_t row = tile.begin + query;
      __syncthreads();
      load_rows(areas.others[0], kOthers, a.head_dim, qkv + qkv_at(a, row, head), a.qkv_stride,
                tile.rows - query);
      load_rows(areas.others[1], kOthers, a.head_dim, dout + out_at(a, row, head), a.out_stride,
                tile.rows - query);
      __syncthreads();
      add_queries(args, tile, areas, head, query, key, dk, dv);
    }
  }
  T* dqkv = static_cast<T*>(args.dqkv);
  store_sums(dk, scale, dqkv + qkv_at(a, tile.begin + key, k_slot), a.qkv_stride, a.head_dim,
             tile.rows - key);
  store_sums(dv, one, dqkv + qkv_at(a, tile.begin + key, v_slot), a.qkv_stride, a.head_dim, tile.rows - key);
}

/// One warp for a row of one head: delta = sum of dout * out.
template <class T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(AttentionLayout a, const T* out, const T* dout, float* delta) {
  const int64_t item = int64_t(blockIdx.x) * kWarps + warp_index();
  if (item >= a.rows * a.heads) return;
  const int64_t row = item / a.heads, at = item * a.head_dim;
  float sum = 0.0f;
  for (int c = lane_index(); c < a.head_dim; c += kWarp) {
    sum = fmaf(widen(out[at + c]), widen(dout[at + c]), sum);
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) delta[statistics_at(a, row, int(item % a.heads))] = sum;
}

template <class T, int kRows, int kColumns>
void run_forward(cudaStream_t stream, const PlainArgs& args) {
  const AttentionLayout& a = args.layout;
  constexpr int kOwn = kRows * kWarps;
  const LaunchShape shape{dim3(blocks(tile_slots(a, kOwn) * a.heads)), dim3(kThreads),
                          area_bytes(kOwn, a.head_dim)};
  launch(stream, plain_forward_kernel<T, kRows, kColumns>, shape, args);
}
template <class T, int kRows, int kColumns>
void run_backward(cudaStream_t stream, const PlainArgs& args) {
  const AttentionLayout& a = args.layout;
  constexpr int kOwn = kRows * kWarps;
  LaunchShape shape{dim3(blocks(tile_slots(a, kOwn) * a.kv_heads)), dim3(kThreads),
                    area_bytes(kOwn, a.head_dim)};
  launch(stream, plain_dkv_kernel<T, kRows, kColumns>, shape, args);
  shape.grid = dim3(blocks(tile_slots(a, kOwn) * a.heads));
  launch(stream, plain_dq_kernel<T, kRows, kColumns>, shape, args);
}

/// Four rows a warp share what is read of the others; wide heads have room for one.
template <class T>
void run(cudaStream_t stream, const PlainArgs& args, bool backward) {
  if (args.layout.head_dim <= 128) {
    return backward ? run_backward<T, 4, 4>(stream, args) : run_forward<T, 4, 4>(stream, args);
  }
  return backward ? run_backward<T, 1, 8>(stream, args) : run_forward<T, 1, 8>(stream, args);
}

}  // namespace

void plain_forward(cudaStream_t stream, const Attention& a, const void* qkv, void* out, float* lse) {
  const PlainArgs args{layout_of(a), qkv, out, lse, nullptr, nullptr, nullptr};
  a.dtype == DType::f32 ? run<float>(stream, args, false) : run<bf16>(stream, args, false);
}

void plain_backward(cudaStream_t stream, const Attention& a, const void* qkv, const float* lse,
                    const float* delta, const void* dout, void* dqkv) {
  // The backward kernels only read lse.
  const PlainArgs args{layout_of(a), qkv, nullptr, const_cast<float*>(lse), delta, dout, dqkv};
  a.dtype == DType::f32 ? run<float>(stream, args, true) : run<bf16>(stream, args, true);
}

void attention_delta(cudaStream_t stream, const Attention& a, const void* out, const void* dout,
                     float* delta) {
  const AttentionLayout layout = layout_of(a);
  const LaunchShape shape{dim3(blocks(ceil_div(layout.rows * layout.heads, kWarps))), dim3(kThreads)};
  if (a.dtype == DType::f32) {
    launch(stream, delta_kernel<float>, shape, layout, static_cast<const float*>(out),
           static_cast<const float*>(dout), delta);
  } else {
    launch(stream, delta_kernel<bf16>, shape, layout, static_cast<const bf16*>(out),
           static_cast<const bf16*>(dout), delta);
  }
}

}  // namespace headrace::kernels::cuda
