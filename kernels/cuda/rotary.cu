// SPDX-License-Identifier: Apache-2.0
// Rotary positions of the cuda device. A block has one position, in every sequence: its sines and cosines are
// made in double once, for all heads.
#include <cmath>

#include "headrace/error.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.h"

namespace headrace::kernels::cuda {
namespace {

constexpr int kMostThreads = 256;
constexpr int64_t kMostHalf = 256;

/// theta^(-2i/head_dim): by the CPU's pow, as the host device has them.
struct Frequencies {
  double of[kMostHalf];
};

template <class T>
struct RotaryRows {
  int64_t rows, seq, row_stride, head_dim;
  unsigned half, heads;
  bool inverse;
  T* qkv;
};

template <int kN, class T>
__device__ __forceinline__ void rotate(T* lower, T* upper, const float* cosine, const float* sine) {
  float a[kN], b[kN], low[kN], high[kN];
  widen_elems(load_elems<kN>(lower), a);
  widen_elems(load_elems<kN>(upper), b);
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    low[i] = a[i] * cosine[i] - b[i] * sine[i];
    high[i] = b[i] * cosine[i] + a[i] * sine[i];
  }
  store_elems(lower, narrow_elems<T>(low));
  store_elems(upper, narrow_elems<T>(high));
}

template <int kN, class T>
__global__ void __launch_bounds__(kMostThreads) rotary_kernel(RotaryRows<T> r, Frequencies frequencies) {
  float* cosine = shared_memory<float>();
  float* sine = cosine + r.half;
  const int64_t position = blockIdx.x;
  for (unsigned i = threadIdx.x; i < r.half; i += blockDim.x) {
    double s, c;
    sincos(double(position) * frequencies.of[i], &s, &c);
    cosine[i] = float(c);
    sine[i] = float(r.inverse ? -s : s);
  }
  __syncthreads();
  const unsigned per_head = r.half / kN, per_row = r.heads * per_head;
  for (int64_t row = position; row < r.rows; row += r.seq) {
    for (unsigned item = threadIdx.x; item < per_row; item += blockDim.x) {
      const unsigned i = item % per_head * kN;
      T* lower = r.qkv + row * r.row_stride + item / per_head * r.head_dim + i;
      rotate<kN>(lower, lower + r.half, cosine + i, sine + i);
    }
  }
}

}  // namespace

void rotary(cudaStream_t stream, const Rotary& r, void* qkv) {
  const int64_t half = r.head_dim / 2;
  HEADRACE_CHECK(half <= kMostHalf, "head_dim above 512");
  if (r.rows == 0 || r.rotated_heads == 0 || half == 0) return;
  Frequencies frequencies{};
  for (int64_t i = 0; i < half; ++i)
    frequencies.of[i] = std::pow(double(r.theta), -2.0 * double(i) / double(r.head_dim));
  with_type(r.dtype, [&](auto type) {
    using T = decltype(type);
    const RotaryRows<T> rows{.rows = r.rows,
                             .seq = r.seq,
                             .row_stride = r.row_stride,
                             .head_dim = r.head_dim,
                             .half = unsigned(half),
                             .heads = unsigned(r.rotated_heads),
                             .inverse = r.inverse,
                             .qkv = static_cast<T*>(qkv)};
    const bool wide = packable<T>(half, qkv) && packable<T>(r.head_dim) && packable<T>(r.row_stride);
    with_width<kWidest<T>>(wide, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      const int threads = round_up_to_warps(r.rotated_heads * (half / kN));
      launch(stream, rotary_kernel<kN, T>,
             {.grid = dim3(blocks(r.seq < r.rows ? r.seq : r.rows)),
              .block = dim3(unsigned(threads < kMostThreads ? threads : kMostThreads)),
              .shared_bytes = 2 * sizeof(float) * size_t(half)},
             rows, frequencies);
    });
  });
}

}  // namespace headrace::kernels::cuda
