// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm of the cuda device, forward. A row is read once: it stays, packed, in the registers
// of the warp or the block that owns it. Rows too long or not aligned for that are read again, from L2. The
// variance is made of differences to the mean, not of squares: nothing cancels.
#include "headrace/error.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/norm_rows.h"

namespace headrace::kernels::cuda {
namespace {

template <class T>
struct ForwardRows {
  int64_t rows, cols;
  float eps;
  const T *x, *weight, *bias;  ///< bias, mean: LayerNorm only
  T* y;
  float *mean, *rstd;
};

struct Statistics {
  float mean, rstd;
};

template <bool kLayer, int kN, class T>
__device__ __forceinline__ void normalise(const ForwardRows<T>& a, const Elems<T, kN>& x, Statistics s,
                                          int64_t row, int64_t col) {
  float values[kN], weight[kN];
  widen_elems(x, values);
  widen_elems(load_elems<kN>(a.weight + col), weight);
  if constexpr (kLayer) {
    float bias[kN];
    widen_elems(load_elems<kN>(a.bias + col), bias);
#pragma unroll
    for (int i = 0; i < kN; ++i) values[i] = fmaf((values[i] - s.mean) * s.rstd, weight[i], bias[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) values[i] = values[i] * s.rstd * weight[i];
  }
  store_elems(a.y + row * a.cols + col, narrow_elems<T>(values));
}

template <int kN, class T>
__device__ __forceinline__ float sum_of(const Elems<T, kN>& x) {
  float values[kN], sum = 0.0f;
  widen_elems(x, values);
#pragma unroll
  for (int i = 0; i < kN; ++i) sum += values[i];
  return sum;
}
template <int kN, class T>
__device__ __forceinline__ float sum_of_squares(const Elems<T, kN>& x, float mean) {
  float values[kN], sum = 0.0f;
  widen_elems(x, values);
#pragma unroll
  for (int i = 0; i < kN; ++i) sum = fmaf(values[i] - mean, values[i] - mean, sum);
  return sum;
}

/// A row's threads are a warp (kWarpRow) or the block; each holds kPer accesses.
template <bool kLayer, bool kWarpRow, int kPer, class T>
__global__ void __launch_bounds__(kMostRowThreads) norm_forward_held(ForwardRows<T> a) {
  constexpr int kN = kWidest<T>;
  const int threads = kWarpRow ? kWarp : int(blockDim.x);
  const int thread = kWarpRow ? int(threadIdx.x) % kWarp : int(threadIdx.x);
  const int64_t row =
      kWarpRow ? int64_t(blockIdx.x) * (int(blockDim.x) / kWarp) + int(threadIdx.x) / kWarp : blockIdx.x;
  if (kWarpRow && row >= a.rows) return;  // whole warps, which wait for no other
  const T* from = a.x + row * a.cols;
  Elems<T, kN> x[kPer] = {};
#pragma unroll
  for (int k = 0; k < kPer; ++k) {
    const int64_t col = int64_t(k * threads + thread) * kN;
    if (col < a.cols) x[k] = load_elems<kN>(from + col);
  }
  const auto row_sum = [&](auto term) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kPer; ++k) {
      if (int64_t(k * threads + thread) * kN < a.cols) sum += term(x[k]);
    }
    if constexpr (kWarpRow) return warp_sum(sum);
    return block_sum(sum, shared_memory<float>());
  };
  Statistics s{};
  if constexpr (kLayer) s.mean = row_sum([](const auto& v) { return sum_of(v); }) / float(a.cols);
  const float squares = row_sum([&](const auto& v) { return sum_of_squares(v, s.mean); });
  s.rstd = 1.0f / sqrtf(squares / float(a.cols) + a.eps);
  if (thread == 0) {
    if constexpr (kLayer) a.mean[row] = s.mean;
    a.rstd[row] = s.rstd;
  }
#pragma unroll
  for (int k = 0; k < kPer; ++k) {
    const int64_t col = int64_t(k * threads + thread) * kN;
    if (col < a.cols) normalise<kLayer>(a, x[k], s, row, col);
  }
}

/// Rows of any length and alignment, a block to each.
template <bool kLayer, int kN, class T>
__global__ void __launch_bounds__(kLongRowThreads) norm_forward_long(ForwardRows<T> a) {
  const int64_t row = blockIdx.x;
  const T* from = a.x + row * a.cols;
  const auto row_sum = [&](auto term) {
    float sum = 0.0f;
    for (int64_t col = int64_t(threadIdx.x) * kN; col < a.cols; col += int64_t(blockDim.x) * kN)
      sum += term(load_elems<kN>(from + col));
    return block_sum(sum, shared_memory<float>());
  };
  Statistics s{};
  if constexpr (kLayer) s.mean = row_sum([](const auto& v) { return sum_of(v); }) / float(a.cols);
  const float squares = row_sum([&](const auto& v) { return sum_of_squares(v, s.mean); });
  s.rstd = 1.0f / sqrtf(squares / float(a.cols) + a.eps);
  if (threadIdx.x == 0) {
    if constexpr (kLayer) a.mean[row] = s.mean;
    a.rstd[row] = s.rstd;
  }
  for (int64_t col = int64_t(threadIdx.x) * kN; col < a.cols; col += int64_t(blockDim.x) * kN)
    normalise<kLayer>(a, load_elems<kN>(from + col), s, row, col);
}

template <bool kLayer, bool kWarpRow, int kPer, class T>
void launch_held(const LaunchOn& on, const ForwardRows<T>& a) {
  constexpr int kWarpRowsOfBlock = 4;
  const int64_t per_row = a.cols / kWidest<T>;
  const int threads = kWarpRow ? kWarpRowsOfBlock * kWarp : round_up_to_warps(ceil_div(per_row, kPer));
  const int64_t grid = kWarpRow ? ceil_div(a.rows, kWarpRowsOfBlock) : a.rows;
  launch(on, norm_forward_held<kLayer, kWarpRow, kPer, T>,
         {.grid = dim3(blocks(grid)), .block = dim3(unsigned(threads)), .shared_bytes = kRowSharedBytes}, a);
}

template <bool kLayer, class T>
void norm_forward(const LaunchOn& on, const ForwardRows<T>& a) {
  if (a.rows == 0 || a.cols == 0) return;
  const bool wide = packable<T>(a.cols, a.x, a.weight, a.bias, a.y);
  const int64_t per_row = a.cols / kWidest<T>;
  if (wide && per_row <= kWarp) return launch_held<kLayer, true, 1>(on, a);
  if (wide && per_row <= 2 * kWarp) return launch_held<kLayer, true, 2>(on, a);
  if (wide && per_row <= 4 * kWarp) return launch_held<kLayer, true, 4>(on, a);
  if (wide && per_row <= 8 * kWarp) return launch_held<kLayer, true, 8>(on, a);
  if (wide && per_row <= 4 * kMostRowThreads) return launch_held<kLayer, false, 4>(on, a);
  with_width<kWidest<T>>(wide, [&](auto width) {
    constexpr int kN = decltype(width)::value;
    launch(on, norm_forward_long<kLayer, kN, T>,
           {.grid = dim3(blocks(a.rows)),
            .block = dim3(long_row_threads(a.cols / kN)),
            .shared_bytes = kRowSharedBytes},
           a);
  });
}

}  // namespace

void rms_norm_forward(cudaStream_t stream, const RmsNorm& n, const void* x, const void* weight, void* y,
                      float* rstd) {
  with_type(n.dtype, [&](auto type) {
    using T = decltype(type);
    norm_forward<false, T>(stream, {.rows = n.rows,
                                    .cols = n.cols,
                                    .eps = n.eps,
                                    .x = static_cast<const T*>(x),
                                    .weight = static_cast<const T*>(weight),
                                    .bias = nullptr,
                                    .y = static_cast<T*>(y),
                                    .mean = nullptr,
                                    .rstd = rstd});
  });
}

void layer_norm_forward(cudaStream_t stream, const LayerNorm& n, const void* x, const void* weight,
                        const void* bias, void* y, float* mean, float* rstd) {
  with_type(n.dtype, [&](auto type) {
    using T = decltype(type);
    norm_forward<true, T>(stream, {.rows = n.rows,
                                   .cols = n.cols,
                                   .eps = n.eps,
                                   .x = static_cast<const T*>(x),
                                   .weight = static_cast<const T*>(weight),
                                   .bias = static_cast<const T*>(bias),
                                   .y = static_cast<T*>(y),
                                   .mean = mean,
                                   .rstd = rstd});
  });
}

}  // namespace headrace::kernels::cuda
