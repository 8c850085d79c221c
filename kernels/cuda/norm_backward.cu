// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm of the cuda device, backward, in one pass over memory: a block takes a group of rows
// one after another, its threads keep their columns, so that dweight and dbias of the group grow in
// registers. The groups' shares are added by column_sums.h. Groups depend on the number of rows only.
#include "headrace/error.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/norm_rows.h"

namespace headrace::kernels::cuda {
namespace {

/// Enough groups for several waves of blocks on the largest GPU, but no smaller than their shares are worth.
int64_t rows_of_group(int64_t rows) {
  constexpr int64_t kGroups = 1024, kLeast = 4, kMost = 64;
  const int64_t wanted = ceil_div(rows, kGroups);
  return wanted < kLeast ? kLeast : wanted > kMost ? kMost : wanted;
}
int64_t group_count(int64_t rows) {
  return ceil_div(rows, rows_of_group(rows));
}

template <class T>
struct BackwardRows {
  int64_t rows, cols, group_rows;
  const T *x, *weight;
  const float *mean, *rstd;  ///< mean: LayerNorm only
  const T *dy, *residual_dx;
  T* dx;
  float* shares;  ///< [groups][cols], LayerNorm [groups][2][cols]
};

/// n = (x - mean) rstd and g = dy weight of an access.
template <int kN>
struct Terms {
  float normal[kN], dy[kN], g[kN];
};

template <int kN, class T>
__device__ __forceinline__ Terms<kN> terms_of(const Elems<T, kN>& x, const Elems<T, kN>& dy,
                                              const Elems<T, kN>& weight, float mean, float rstd) {
  Terms<kN> t;
  float scale[kN];
  widen_elems(x, t.normal);
  widen_elems(dy, t.dy);
  widen_elems(weight, scale);
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    t.normal[i] = (t.normal[i] - mean) * rstd;
    t.g[i] = t.dy[i] * scale[i];
  }
  return t;
}

/// Sums of g n (along) and, in LayerNorm, of g (level).
struct RowSums {
  float along = 0.0f, level = 0.0f;
};

template <bool kLayer, int kN>
__device__ __forceinline__ void add_terms(RowSums& sums, const Terms<kN>& t) {
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    sums.along = fmaf(t.g[i], t.normal[i], sums.along);
    if constexpr (kLayer) sums.level += t.g[i];
  }
}

/// The block's sums as means over the row, given to all threads. As block_sum(), for both at once.
template <bool kLayer>
__device__ __forceinline__ RowSums block_means(RowSums sums, int64_t cols, float* area) {
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp, warps = int(blockDim.x) / kWarp;
  sums.along = warp_sum(sums.along);
  if constexpr (kLayer) sums.level = warp_sum(sums.level);
  if (lane == 0) {
    area[warp] = sums.along;
    if constexpr (kLayer) area[warps + warp] = sums.level;
  }
  __syncthreads();
  sums.along = warp_sum(lane < warps ? area[lane] : 0.0f);
  if constexpr (kLayer) sums.level = warp_sum(lane < warps ? area[warps + lane] : 0.0f);
  __syncthreads();
  return {sums.along / float(cols), sums.level / float(cols)};
}

/// dx = rstd (g - mean(g) - n mean(g n)) + residual; without mean(g) in RMSNorm.
template <bool kLayer, int kN, class T>
__device__ __forceinline__ void store_dx(T* dx, const Terms<kN>& t, const Elems<T, kN>& residual,
                                         RowSums mean, float rstd) {
  float values[kN], added[kN];
  widen_elems(residual, added);
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    const float across = kLayer ? t.g[i] - mean.level : t.g[i];
    values[i] = fmaf(rstd, fmaf(-t.normal[i], mean.along, across), added[i]);
  }
  store_elems(dx, narrow_elems<T>(values));
}

/// Packed in registers: what is read of a row.
template <int kPer, class T>
struct HeldRow {
  static constexpr int kN = kWidest<T>;
  Elems<T, kN> x[kPer] = {}, dy[kPer] = {};
  float mean = 0.0f, rstd = 0.0f;

  template <bool kLayer>
  __device__ __forceinline__ void load(const BackwardRows<T>& a, int64_t row) {
    mean = kLayer ? a.mean[row] : 0.0f;
    rstd = a.rstd[row];
#pragma unroll
    for (int k = 0; k < kPer; ++k) {
      const int64_t col = int64_t(k * blockDim.x + threadIdx.x) * kN;
      if (col >= a.cols) continue;
      x[k] = load_elems<kN>(a.x + row * a.cols + col);
      dy[k] = load_elems<kN>(a.dy + row * a.cols + col);
    }
  }
};

/// The sums of a group in the registers of the thread that has their columns.
template <bool kLayer, int kPer, int kN>
struct HeldSums {
  float dweight[kPer][kN] = {}, dbias[kLayer ? kPer : 1][kN] = {};

  __device__ __forceinline__ void add(int k, const Terms<kN>& t) {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      dweight[k][i] = fmaf(t.dy[i], t.normal[i], dweight[k][i]);
      if constexpr (kLayer) dbias[k][i] += t.dy[i];
    }
  }
};

/// The first column of the k-th access of a thread.
template <int kN>
__device__ __forceinline__ int64_t column_of(int k) {
  return int64_t(k * blockDim.x + threadIdx.x) * kN;
}

/// The most threads of a block by the accesses that each holds, and as many blocks of a multiprocessor as
/// leave registers for that: what is on its way is what keeps memory busy.
template <int kPer>
constexpr int kHeldThreads = kPer == 1 ? kMostRowThreads / 2 : kMostRowThreads;
template <int kPer>
constexpr int kHeldBlocks = kPer == 1 ? 3 : 1;

template <bool kLayer, int kPer, class T>
__global__ void __launch_bounds__(kHeldThreads<kPer>, kHeldBlocks<kPer>)
    norm_backward_held(BackwardRows<T> a) {
  constexpr int kN = kWidest<T>;
  const int64_t first = int64_t(blockIdx.x) * a.group_rows;
  const int64_t last = first + a.group_rows < a.rows ? first + a.group_rows : a.rows;
  Elems<T, kN> weight[kPer] = {}, residual[kPer] = {};
#pragma unroll
  for (int k = 0; k < kPer; ++k) {
    if (column_of<kN>(k) < a.cols) weight[k] = load_elems<kN>(a.weight + column_of<kN>(k));
  }
  HeldSums<kLayer, kPer, kN> held;
  HeldRow<kPer, T> next;
  next.template load<kLayer>(a, first);
  for (int64_t row = first; row < last; ++row) {
    const HeldRow<kPer, T> now = next;
    if (row + 1 < last) next.template load<kLayer>(a, row + 1);  // on its way while this row is summed
    RowSums sums;
#pragma unroll
    for (int k = 0; k < kPer; ++k) {
      if (column_of<kN>(k) >= a.cols) continue;
      if (a.residual_dx) residual[k] = load_elems<kN>(a.residual_dx + row * a.cols + column_of<kN>(k));
      const Terms<kN> t = terms_of(now.x[k], now.dy[k], weight[k], now.mean, now.rstd);
      add_terms<kLayer>(sums, t);
      held.add(k, t);
    }
    const RowSums means = block_means<kLayer>(sums, a.cols, shared_memory<float>());
#pragma unroll
    for (int k = 0; k < kPer; ++k) {
      if (column_of<kN>(k) >= a.cols) continue;
      const Terms<kN> t = terms_of(now.x[k], now.dy[k], weight[k], now.mean, now.rstd);
      store_dx<kLayer>(a.dx + row * a.cols + column_of<kN>(k), t, residual[k], means, now.rstd);
    }
  }
  float* share = a.shares + int64_t(blockIdx.x) * (kLayer ? 2 : 1) * a.cols;
#pragma unroll
  for (int k = 0; k < kPer; ++k) {
    if (column_of<kN>(k) >= a.cols) continue;
    store_floats(share + column_of<kN>(k), held.dweight[k]);
    if constexpr (kLayer) store_floats(share + a.cols + column_of<kN>(k), held.dbias[k]);
  }
}

/// sums += x y, in memory; what was there before the first row does not count.
template <int kN>
__device__ __forceinline__ void grow(float* sums, const float (&x)[kN], const float (&y)[kN], bool first) {
  float sum[kN] = {};
  if (!first) load_floats(sums, sum);
#pragma unroll
  for (int i = 0; i < kN; ++i) sum[i] = fmaf(x[i], y[i], sum[i]);
  store_floats(sums, sum);
}

/// Rows of any length and alignment: read twice, and the shares grow in memory.
template <bool kLayer, int kN, class T>
__global__ void __launch_bounds__(kLongRowThreads) norm_backward_long(BackwardRows<T> a) {
  const int64_t first = int64_t(blockIdx.x) * a.group_rows;
  const int64_t last = first + a.group_rows < a.rows ? first + a.group_rows : a.rows;
  float* dweight = a.shares + int64_t(blockIdx.x) * (kLayer ? 2 : 1) * a.cols;
  float* dbias = dweight + a.cols;
  float ones[kN];
  for (float& one : ones) one = 1.0f;
  for (int64_t row = first; row < last; ++row) {
    const float mean = kLayer ? a.mean[row] : 0.0f, rstd = a.rstd[row];
    const auto for_terms = [&](auto body) {
      for (int64_t col = int64_t(threadIdx.x) * kN; col < a.cols; col += int64_t(blockDim.x) * kN) {
        const int64_t at = row * a.cols + col;
        body(col, at,
             terms_of(load_elems<kN>(a.x + at), load_elems<kN>(a.dy + at), load_elems<kN>(a.weight + col),
                      mean, rstd));
      }
    };
    RowSums sums;
    for_terms([&](int64_t, int64_t, const Terms<kN>& t) { add_terms<kLayer>(sums, t); });
    const RowSums means = block_means<kLayer>(sums, a.cols, shared_memory<float>());
    for_terms([&](int64_t col, int64_t at, const Terms<kN>& t) {
      grow(dweight + col, t.dy, t.normal, row == first);
      if constexpr (kLayer) grow(dbias + col, t.dy, ones, row == first);
      const Elems<T, kN> residual = a.residual_dx ? load_elems<kN>(a.residual_dx + at) : Elems<T, kN>{};
      store_dx<kLayer>(a.dx + at, t, residual, means, rstd);
    });
  }
}

template <bool kLayer, int kPer, class T>
void launch_held(const LaunchOn& on, const BackwardRows<T>& a) {
  const int threads = round_up_to_warps(ceil_div(a.cols / kWidest<T>, kPer));
  launch(on, norm_backward_held<kLayer, kPer, T>,
         {.grid = dim3(blocks(group_count(a.rows))),
          .block = dim3(unsigned(threads)),
          .shared_bytes = kRowSharedBytes},
         a);
}

template <bool kLayer, class T>
void launch_groups(const LaunchOn& on, const BackwardRows<T>& a) {
  const bool wide = packable<T>(a.cols, a.x, a.weight, a.dy, a.residual_dx, a.dx, a.shares);
  const int64_t per_row = a.cols / kWidest<T>;
  if (wide && per_row <= kHeldThreads<1>) return launch_held<kLayer, 1>(on, a);
  if (wide && per_row <= 2 * kHeldThreads<2>) return launch_held<kLayer, 2>(on, a);
  with_width<kWidest<T>>(wide, [&](auto width) {
    constexpr int kN = decltype(width)::value;
    launch(on, norm_backward_long<kLayer, kN, T>,
           {.grid = dim3(blocks(group_count(a.rows))),
            .block = dim3(long_row_threads(a.cols / kN)),
            .shared_bytes = kRowSharedBytes},
           a);
  });
}

struct Gradients {
  float *dweight, *dbias;
};

template <bool kLayer, class T>
void norm_backward(const LaunchOn& on, BackwardRows<T> a, Gradients sums, Scratch scratch) {
  if (a.rows == 0 || a.cols == 0) return;
  HEADRACE_CHECK(scratch.bytes >= norm_scratch_bytes(a.rows, a.cols), "scratch smaller than asked for");
  a.group_rows = rows_of_group(a.rows);
  a.shares = reinterpret_cast<float*>(scratch.data);
  launch_groups<kLayer>(on, a);
  add_shares(on, {.groups = group_count(a.rows),
                  .cols = a.cols,
                  .shares = a.shares,
                  .parts = kLayer ? 2 : 1,
                  .sums = {sums.dweight, sums.dbias}});
}

}  // namespace

size_t norm_scratch_bytes(int64_t rows, int64_t cols) {
  return size_t(group_count(rows) * 2 * cols) * sizeof(float);
}

void rms_norm_backward(cudaStream_t stream, const RmsNorm& n, const void* x, const void* weight,
                       const float* rstd, const void* dy, const void* residual_dx, void* dx, float* dweight,
                       Scratch scratch) {
  with_type(n.dtype, [&](auto type) {
    using T = decltype(type);
    norm_backward<false, T>(stream,
                            {.rows = n.rows,
                             .cols = n.cols,
                             .group_rows = 0,
                             .x = static_cast<const T*>(x),
                             .weight = static_cast<const T*>(weight),
                             .mean = nullptr,
                             .rstd = rstd,
                             .dy = static_cast<const T*>(dy),
                             .residual_dx = static_cast<const T*>(residual_dx),
                             .dx = static_cast<T*>(dx),
                             .shares = nullptr},
                            {dweight, nullptr}, scratch);
  });
}

void layer_norm_backward(cudaStream_t stream, const LayerNorm& n, const void* x, const void* weight,
                         const float* mean, const float* rstd, const void* dy, const void* residual_dx,
                         void* dx, float* dweight, float* dbias, Scratch scratch) {
  with_type(n.dtype, [&](auto type) {
    using T = decltype(type);
    norm_backward<true, T>(stream,
                           {.rows = n.rows,
                            .cols = n.cols,
                            .group_rows = 0,
                            .x = static_cast<const T*>(x),
                            .weight = static_cast<const T*>(weight),
                            .mean = mean,
                            .rstd = rstd,
                            .dy = static_cast<const T*>(dy),
                            .residual_dx = static_cast<const T*>(residual_dx),
                            .dx = static_cast<T*>(dx),
                            .shares = nullptr},
                           {dweight, dbias}, scratch);
  });
}

}  // namespace headrace::kernels::cuda
