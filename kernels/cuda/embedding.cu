// SPDX-License-Identifier: Apache-2.0
// Embedding of the cuda device. Backward without atomics and scratch: the first row of a token adds the rows
// of all its repetitions, ascending, which are the order and the bits of the host.
#include "headrace/error.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.h"

namespace headrace::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Forward: accesses of the result, some to a thread.

constexpr int kForwardAccesses = 4;

template <class T>
struct Lookup {
  int64_t accesses;
  unsigned per_row, seq;
  const int32_t* tokens;
  const T *table, *positions;
  T* y;
};

template <int kN, class T>
__global__ void __launch_bounds__(kThreads) embedding_forward_kernel(Lookup<T> l) {
  const int64_t first = int64_t(blockIdx.x) * (kForwardAccesses * kThreads);
  Elems<T, kN> in[kForwardAccesses], position[kForwardAccesses];
#pragma unroll
  for (int k = 0; k < kForwardAccesses; ++k) {
    const unsigned offset = k * kThreads + threadIdx.x;
    if (first + offset >= l.accesses) continue;
    const MatrixAccess at = matrix_access(first, offset, l.per_row);
    in[k] = load_elems<kN>(l.table + (int64_t(l.tokens[at.row]) * l.per_row + at.index) * kN);
    if (l.positions)
      position[k] =
          load_elems<kN>(l.positions + (int64_t(unsigned(at.row) % l.seq) * l.per_row + at.index) * kN);
  }
#pragma unroll
  for (int k = 0; k < kForwardAccesses; ++k) {
    const unsigned offset = k * kThreads + threadIdx.x;
    if (first + offset >= l.accesses) return;
    if (l.positions) {
      float a[kN], b[kN];
      widen_elems(in[k], a);
      widen_elems(position[k], b);
#pragma unroll
      for (int i = 0; i < kN; ++i) a[i] += b[i];
      in[k] = narrow_elems<T>(a);
    }
    store_elems(l.y + (first + offset) * kN, in[k]);
  }
}

// Backward, of the table: a block to a row and a range of columns.

constexpr int kBatch = 8;  ///< rows on their way together

template <class T>
struct TableRows {
  int64_t rows, cols;
  const int32_t* tokens;
  const T* dy;
  float* dtable;
};

/// Whether `flag` holds in any thread; two barriers. `area`: one int per warp.
__device__ __forceinline__ bool block_any(bool flag, int* area) {
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  const bool found = __any_sync(kAllLanes, flag) != 0;
  if (lane == 0) area[warp] = found;
  __syncthreads();
  const bool any = __any_sync(kAllLanes, lane < int(blockDim.x) / kWarp && area[lane] != 0) != 0;
  __syncthreads();
  return any;
}

/// tokens[i] for the accesses of this thread in a turn of kBatch * blockDim.x tokens.
__device__ __forceinline__ bool token_in(const int32_t* tokens, int64_t first, int64_t end, int32_t token) {
  bool found = false;
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    const int64_t i = first + int64_t(k) * blockDim.x + threadIdx.x;
    if (i < end) found |= tokens[i] == token;
  }
  return found;
}

/// Lists, ascending, the offsets of the token among the blockDim.x tokens from `first`; returns their number.
/// `area`: one int per warp; two barriers.
__device__ __forceinline__ int list_rows(const int32_t* tokens, int64_t first, int64_t end, int32_t token,
                                         int* area, int* list) {
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  const int64_t i = first + threadIdx.x;
  const bool here = i < end && tokens[i] == token;
  const unsigned lanes = __ballot_sync(kAllLanes, here);
  if (lane == 0) area[warp] = __popc(lanes);
  __syncthreads();
  int before = 0, count = 0;
  for (int w = 0; w < int(blockDim.x) / kWarp; ++w) {
    if (w < warp) before += area[w];
    count += area[w];
  }
  if (here) list[before + __popc(lanes & ((1u << lane) - 1u))] = int(threadIdx.x);
  __syncthreads();
  return count;
}

/// sum += rows of dy, in the order of the list.
template <int kN, class T>
__device__ __forceinline__ void add_listed(const T* dy, int64_t cols, const int* list, int count,
                                           float (&sum)[kN]) {
  for (int from = 0; from < count; from += kBatch) {
    Elems<T, kN> in[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (from + k < count) in[k] = load_elems<kN>(dy + list[from + k] * cols);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (from + k >= count) break;
      float values[kN];
      widen_elems(in[k], values);
#pragma unroll
      for (int i = 0; i < kN; ++i) sum[i] += values[i];
    }
  }
}

template <int kN, class T>
__global__ void __launch_bounds__(kThreads) embedding_backward_kernel(TableRows<T> t) {
  int* area = shared_memory<int>();
  int* list = area + kThreads / kWarp;
  const int64_t row = blockIdx.x, turn = int64_t(kBatch) * blockDim.x;
  const int32_t token = t.tokens[row];
  for (int64_t at = 0; at < row; at += turn) {
    if (block_any(token_in(t.tokens, at, row, token), area)) return;  // an earlier row has this token
  }
  const int64_t col = (int64_t(blockIdx.y) * blockDim.x + threadIdx.x) * kN;
  const bool mine = col < t.cols;
  float* to = t.dtable + token * t.cols + col;
  float sum[kN] = {};
  if (mine) load_floats(to, sum);
  for (int64_t at = row; at < t.rows; at += turn) {
    if (!block_any(token_in(t.tokens, at, t.rows, token), area)) continue;
    for (int k = 0; k < kBatch; ++k) {
      const int64_t first = at + int64_t(k) * blockDim.x;
      const int count = list_rows(t.tokens, first, t.rows, token, area, list);
      if (mine) add_listed<kN>(t.dy + first * t.cols + col, t.cols, list, count, sum);
    }
  }
  if (mine) store_floats(to, sum);
}

// Backward, of the positions: a thread has an access of columns of one position.

template <int kN, class T>
__global__ void __launch_bounds__(kThreads)
    positions_backward(int64_t accesses, int64_t rows, int64_t seq, unsigned per_row, const T* dy,
                       float* dpositions) {
  const int64_t access = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (access >= accesses) return;
  const int64_t position = access / per_row, cols = int64_t(per_row) * kN;
  float* to = dpositions + access * kN;
  const T* from = dy + access * kN;
  float sum[kN];
  load_floats(to, sum);
#pragma unroll 4
  for (int64_t row = position; row < rows; row += seq) {
    float values[kN];
    widen_elems(load_elems<kN>(from + (row - position) * cols), values);
#pragma unroll
    for (int i = 0; i < kN; ++i) sum[i] += values[i];
  }
  store_floats(to, sum);
}

/// At least as many threads as make the search through the tokens short.
unsigned threads_of_columns(int64_t accesses) {
  constexpr int64_t kLeastThreads = 128;
  const int64_t wanted = round_up_to_warps(accesses < kThreads ? accesses : kThreads);
  return unsigned(wanted < kLeastThreads ? kLeastThreads : wanted);
}

template <int kN, class T>
void launch_backward(const LaunchOn& on, const Embedding& e, const int32_t* tokens, const T* dy,
                     float* dtable, float* dpositions) {
  const int64_t per_row = e.cols / kN;
  const unsigned threads = threads_of_columns(per_row);
  launch(on, embedding_backward_kernel<kN, T>,
         {.grid = dim3(blocks(e.rows), blocks(ceil_div(per_row, threads))),
          .block = dim3(threads),
          .shared_bytes = sizeof(int) * (kThreads / kWarp + kThreads)},
         TableRows<T>{.rows = e.rows, .cols = e.cols, .tokens = tokens, .dy = dy, .dtable = dtable});
  if (!dpositions) return;
  const int64_t accesses = (e.seq < e.rows ? e.seq : e.rows) * per_row;
  launch(on, positions_backward<kN, T>,
         {.grid = dim3(blocks(ceil_div(accesses, kThreads))), .block = dim3(kThreads)}, accesses, e.rows,
         e.seq, unsigned(per_row), dy, dpositions);
}

}  // namespace

void embedding_forward(cudaStream_t stream, const Embedding& e, const int32_t* tokens, const void* table,
                       const void* positions, void* y) {
  if (e.rows == 0 || e.cols == 0) return;
  HEADRACE_CHECK(e.rows <= INT32_MAX, "more rows than 32 bits count");
  with_type(e.dtype, [&](auto type) {
    using T = decltype(type);
    with_width<kWidest<T>>(packable<T>(e.cols, table, positions, y), [&](auto width) {
      constexpr int kN = decltype(width)::value;
      const int64_t accesses = e.rows * (e.cols / kN);
      launch(stream, embedding_forward_kernel<kN, T>,
             {.grid = dim3(blocks(ceil_div(accesses, kForwardAccesses * kThreads))), .block = dim3(kThreads)},
             Lookup<T>{.accesses = accesses,
                       .per_row = unsigned(e.cols / kN),
                       .seq = unsigned(e.seq),
                       .tokens = tokens,
                       .table = static_cast<const T*>(table),
                       .positions = static_cast<const T*>(positions),
                       .y = static_cast<T*>(y)});
    });
  });
}

void embedding_backward(cudaStream_t stream, const Embedding& e, const int32_t* tokens, const void* dy,
                        float* dtable, float* dpositions) {
  if (e.rows == 0 || e.cols == 0) return;
  with_type(e.dtype, [&](auto type) {
    using T = decltype(type);
    with_width<kWidest<T>>(packable<T>(e.cols, dy, dtable, dpositions), [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch_backward<kN>(stream, e, tokens, static_cast<const T*>(dy), dtable, dpositions);
    });
  });
}

}  // namespace headrace::kernels::cuda
