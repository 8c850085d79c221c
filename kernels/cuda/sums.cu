// SPDX-License-Identifier: Apache-2.0
// Sums of the cuda device: over rows, in shares of groups of rows, and of squares, tile by tile in the order
// of headrace::adam::sum_squares, so that a norm has the same bits wherever it is made.
#include "headrace/error.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.h"

namespace headrace::kernels::cuda {
namespace {

// Shares -> sums. A warp has kWarp columns and every kShareWarps-th share; its block's warps are then added
// in ascending order.

constexpr int kShareWarps = 16;

__global__ void __launch_bounds__(kShareWarps* kWarp)
    add_shares_kernel(ColumnShares s, unsigned column_blocks) {
  float* area = shared_memory<float>();  // [kShareWarps][kWarp]
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  const unsigned part = blockIdx.x / column_blocks;
  const int64_t col = int64_t(blockIdx.x % column_blocks) * kWarp + lane;
  float sum = 0.0f;
  if (col < s.cols) {
#pragma unroll 8
    for (int64_t group = warp; group < s.groups; group += kShareWarps)
      sum += s.shares[(group * s.parts + part) * s.cols + col];
  }
  area[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || col >= s.cols) return;
  for (int w = 1; w < kShareWarps; ++w) sum += area[w * kWarp + lane];
  float* to = (part == 0 ? s.sums[0] : s.sums[1]) + col;
  *to += sum;
}

// Column sums of a matrix: a block takes kWarp accesses across and kGroupRows rows down; its warps share the
// rows and are added in ascending order.

constexpr int kGroupRows = 64;
constexpr int kColumnWarps = 8;

template <int kN, class T>
__global__ void __launch_bounds__(kColumnWarps* kWarp)
    share_of_rows(int64_t rows, int64_t cols, unsigned column_blocks, const T* x, float* shares) {
  float* area = shared_memory<float>();  // [kColumnWarps][kWarp * kN]
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  const int64_t group = blockIdx.x / column_blocks;
  const int64_t first_col = int64_t(blockIdx.x % column_blocks) * (kWarp * kN);
  const int64_t col = first_col + lane * kN;
  Elems<T, kN> in[kGroupRows / kColumnWarps] = {};
#pragma unroll
  for (int k = 0; k < kGroupRows / kColumnWarps; ++k) {
    const int64_t row = group * kGroupRows + k * kColumnWarps + warp;
    if (row < rows && col < cols) in[k] = load_elems<kN>(x + row * cols + col);
  }
  float sum[kN] = {};
#pragma unroll
  for (int k = 0; k < kGroupRows / kColumnWarps; ++k) {
    float values[kN];
    widen_elems(in[k], values);
#pragma unroll
    for (int i = 0; i < kN; ++i) sum[i] += values[i];
  }
#pragma unroll
  for (int i = 0; i < kN; ++i) area[(warp * kWarp + lane) * kN + i] = sum[i];
  __syncthreads();
  for (int i = int(threadIdx.x); i < kWarp * kN && first_col + i < cols; i += kColumnWarps * kWarp) {
    float total = 0.0f;
    for (int w = 0; w < kColumnWarps; ++w) total += area[w * kWarp * kN + i];
    shares[group * cols + first_col + i] = total;
  }
}

// Squares. The order asks for 16 chains of additions that cannot be cut, 4096 long in a tile: half a warp of
// each block adds, from shared memory, while the block's other loads are on their way. Blocks are small, so
// that many chains run on a multiprocessor, which is what keeps its bandwidth busy.

constexpr int kLanes = 16;
constexpr int kSquareThreads = 128;
constexpr int kStageElems = 1024;

template <int kN>
struct Stage {
  static constexpr int kAccesses = kStageElems / (kSquareThreads * kN);
  Elems<float, kN> x[kAccesses];

  __device__ __forceinline__ static int offset(int k) { return (k * kSquareThreads + int(threadIdx.x)) * kN; }
  /// `count` elements from `from`; beyond them zeros, which add nothing.
  __device__ __forceinline__ void load(const float* from, int64_t count) {
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) x[k] = load_elems<kN>(from + offset(k), count - offset(k));
  }
  /// The rounded elements go to `to` and to the area.
  template <class T>
  __device__ __forceinline__ void round(T* to, int64_t count, float* area) const {
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      float values[kN];
      widen_elems(x[k], values);
      const Elems<T, kN> rounded = narrow_elems<T>(values);
      if (count - offset(k) >= kN) {
        store_elems(to + offset(k), rounded);
      } else {
        store_elems(to + offset(k), values, count - offset(k));
      }
      widen_elems(rounded, values);
      store_elems(area + offset(k), narrow_elems<float>(values));
    }
  }
};

template <int kN, class T>
__global__ void __launch_bounds__(kSquareThreads)
    round_and_sum_squares_kernel(int64_t elems, const float* x, T* y, double* tile_sums) {
  float* area = shared_memory<float>();  // [2][kStageElems]
  const int64_t first = int64_t(blockIdx.x) * kNormTileElems;
  const int64_t count = elems - first < kNormTileElems ? elems - first : kNormTileElems;
  double sum = 0.0;
  Stage<kN> stage;
  stage.load(x + first, count);
  int turn = 0;
  for (int64_t at = 0; at < count; at += kStageElems, turn ^= 1) {
    stage.round(y + first + at, count - at, area + turn * kStageElems);
    if (at + kStageElems < count) stage.load(x + first + at + kStageElems, count - at - kStageElems);
    __syncthreads();  // the other half of the area was last read before this
    if (threadIdx.x < kLanes) {
      const float* values = area + turn * kStageElems + threadIdx.x;
#pragma unroll 16
      for (int i = 0; i < kStageElems; i += kLanes) {
        const double value = values[i];
        sum = fma(value, value, sum);  // squares are exact: one rounding, that of the addition
      }
    }
  }
  if (threadIdx.x >= kWarp) return;
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(kAllLanes, sum, half);
  if (threadIdx.x == 0) tile_sums[blockIdx.x] = sum;
}

}  // namespace

void add_shares(const LaunchOn& on, const ColumnShares& s) {
  if (s.groups == 0 || s.cols == 0) return;
  const unsigned column_blocks = unsigned(ceil_div(s.cols, kWarp));
  launch(on, add_shares_kernel,
         {.grid = dim3(column_blocks * unsigned(s.parts)),
          .block = dim3(kShareWarps * kWarp),
          .shared_bytes = sizeof(float) * kShareWarps * kWarp},
         s, column_blocks);
}

size_t column_sums_scratch_bytes(int64_t rows, int64_t cols) {
  return size_t(ceil_div(rows, kGroupRows) * cols) * sizeof(float);
}

void add_column_sums(cudaStream_t stream, int64_t rows, int64_t cols, DType dtype, const void* x, float* sums,
                     Scratch scratch) {
  if (rows == 0 || cols == 0) return;
  HEADRACE_CHECK(scratch.bytes >= column_sums_scratch_bytes(rows, cols), "scratch smaller than asked for");
  const int64_t groups = ceil_div(rows, kGroupRows);
  float* shares = reinterpret_cast<float*>(scratch.data);
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    with_width<kWidest<T>>(packable<T>(cols, x), [&](auto width) {
      constexpr int kN = decltype(width)::value;
      const int64_t column_blocks = ceil_div(cols, kWarp * kN);
      launch(stream, share_of_rows<kN, T>,
             {.grid = dim3(blocks(groups * column_blocks)),
              .block = dim3(kColumnWarps * kWarp),
              .shared_bytes = sizeof(float) * kColumnWarps * kWarp * kN},
             rows, cols, unsigned(column_blocks), static_cast<const T*>(x), shares);
    });
  });
  add_shares(stream, {.groups = groups, .cols = cols, .shares = shares, .parts = 1, .sums = {sums, nullptr}});
}

void round_and_sum_squares(cudaStream_t stream, int64_t elems, const float* x, DType to, void* y,
                           double* tile_sums) {
  if (elems == 0) return;
  with_type(to, [&](auto type) {
    using T = decltype(type);
    constexpr int kWide = kWidest<float>;
    with_width<kWide>(aligned_to(kWide * 4, x) && aligned_to(kWide * sizeof(T), y), [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(stream, round_and_sum_squares_kernel<kN, T>,
             {.grid = dim3(blocks(ceil_div(elems, kNormTileElems))),
              .block = dim3(kSquareThreads),
              .shared_bytes = 2 * sizeof(float) * kStageElems},
             elems, x, static_cast<T*>(y), tile_sums);
    });
  });
}

}  // namespace headrace::kernels::cuda
