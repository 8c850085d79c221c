// SPDX-License-Identifier: Apache-2.0
// The loss of the cuda device: a block to a row. One pass keeps the maximum and the sum of exponentials
// together (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"), a second makes the
// gradient. Losses of rows are added by one block, in an order that depends on their number alone.
#include <cfloat>

#include "headrace/error.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.h"

namespace headrace::kernels::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kLossThreads = 256;

/// Elements of an access: 16 bytes of logits. Rows of an odd vocabulary begin anywhere, so that a row has up
/// to three elements before its first whole access and after its last.
constexpr int kN = kWidest<float>;
/// Accesses of a thread that are on their way together.
constexpr int kAccesses = 4;

/// Seen so far: the largest, and the sum of exp(x - top). -FLT_MAX instead of -infinity, which a logit may
/// be: no difference to it is NaN.
struct Online {
  float top = -FLT_MAX, sum = 0.0f;

  template <int kCount>
  __device__ __forceinline__ void add(const float (&x)[kCount]) {
    float above = top;
#pragma unroll
    for (int i = 0; i < kCount; ++i) above = fmaxf(above, x[i]);
    sum *= expf(top - above);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += expf(x[i] - above);
    top = above;
  }
};

/// Given to all threads; `area`: one float per warp. fmaxf drops NaN, which the sum keeps.
__device__ __forceinline__ Online block_total(Online own, float* area) {
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  float top = warp_max(own.top);
  if (lane == 0) area[warp] = top;
  __syncthreads();
  top = warp_max(lane < int(blockDim.x) / kWarp ? area[lane] : -FLT_MAX);
  __syncthreads();
  Online total;
  total.top = top;
  total.sum = block_sum(own.sum * expf(own.top - top), area);
  return total;
}

/// [0, head) one by one, then `accesses` of kN, then the rest one by one.
struct RowCut {
  int64_t head, accesses, tail;
};
__device__ __forceinline__ RowCut cut_row(const float* logits, int64_t vocab) {
  const int64_t before = int64_t((16 - reinterpret_cast<uintptr_t>(logits) % 16) / sizeof(float)) % kN;
  const int64_t head = before < vocab ? before : vocab;
  return {head, (vocab - head) / kN, (vocab - head) % kN};
}

__device__ __forceinline__ Online scan_row(const float* logits, int64_t vocab, const RowCut& cut) {
  Online seen;
  if (threadIdx.x < cut.head) seen.add<1>({logits[threadIdx.x]});
  if (threadIdx.x < cut.tail) seen.add<1>({logits[vocab - cut.tail + threadIdx.x]});
  for (int64_t at = threadIdx.x; at < cut.accesses; at += int64_t(kAccesses) * blockDim.x) {
    Elems<float, kN> in[kAccesses];
    float x[kAccesses * kN];
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      const int64_t i = at + int64_t(k) * blockDim.x;
      if (i < cut.accesses) in[k] = load_elems<kN>(logits + cut.head + i * kN);
    }
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      const bool inside = at + int64_t(k) * blockDim.x < cut.accesses;
#pragma unroll
      for (int j = 0; j < kN; ++j) x[k * kN + j] = inside ? in[k].raw[j] : -INFINITY;
    }
    seen.add(x);
  }
  return seen;
}

/// `wide`: the whole accesses of the row are aligned in dlogits as they are in logits.
template <class T>
__device__ __forceinline__ void store_access(T* to, const float (&values)[kN], bool wide) {
  if (wide) return store_elems(to, narrow_elems<T>(values));
#pragma unroll
  for (int i = 0; i < kN; ++i) to[i] = narrow<T>(values[i]);
}
template <class T>
__device__ __forceinline__ bool wide_gradient(const T* dlogits, const RowCut& cut) {
  return reinterpret_cast<uintptr_t>(dlogits + cut.head) % (kN * sizeof(T)) == 0;
}

/// What turns a logit into its gradient.
struct Slope {
  float top, inverse_sum, scale;
  int64_t label;

  __device__ __forceinline__ float at(float logit, int64_t i) const {
    const float p = expf(logit - top) * inverse_sum;
    return (i == label ? p - 1.0f : p) * scale;
  }
};

/// Backwards: what scan_row() read last is in the cache still. dlogits may be the logits: every element is
/// read and written by one thread.
template <class T>
__device__ __forceinline__ void store_gradient(const float* logits, int64_t vocab, const RowCut& cut,
                                               const Slope& slope, T* dlogits) {
  const bool wide = wide_gradient(dlogits, cut);
  for (int64_t at = threadIdx.x; at < cut.accesses; at += int64_t(kAccesses) * blockDim.x) {
    Elems<float, kN> in[kAccesses];
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      const int64_t i = cut.accesses - 1 - at - int64_t(k) * blockDim.x;
      if (i >= 0) in[k] = load_elems<kN>(logits + cut.head + i * kN);
    }
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      const int64_t i = cut.accesses - 1 - at - int64_t(k) * blockDim.x;
      if (i < 0) break;
      const int64_t first = cut.head + i * kN;
      float d[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) d[j] = slope.at(in[k].raw[j], first + j);
      store_access(dlogits + first, d, wide);
    }
  }
  const auto store_one = [&](int64_t i) { dlogits[i] = narrow<T>(slope.at(logits[i], i)); };
  if (threadIdx.x < cut.head) store_one(threadIdx.x);
  if (threadIdx.x < cut.tail) store_one(vocab - cut.tail + threadIdx.x);
}

template <class T>
__device__ __forceinline__ void store_zeros(int64_t vocab, const RowCut& cut, T* dlogits) {
  const bool wide = wide_gradient(dlogits, cut);
  const float zeros[kN] = {};
  for (int64_t i = threadIdx.x; i < cut.accesses; i += blockDim.x) {
    store_access(dlogits + cut.head + i * kN, zeros, wide);
  }
  if (threadIdx.x < cut.head) dlogits[threadIdx.x] = T{};
  if (threadIdx.x < cut.tail) dlogits[vocab - cut.tail + threadIdx.x] = T{};
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    cross_entropy_row(int64_t vocab, float grad_scale, const float* all_logits, const int32_t* labels,
                      double* losses, T* all_dlogits) {
  const int64_t row = blockIdx.x;
  const float* logits = all_logits + row * vocab;
  T* dlogits = all_dlogits ? all_dlogits + row * vocab : nullptr;
  const int64_t label = labels[row];
  const RowCut cut = cut_row(logits, vocab);
  if (label < 0) {
    if (threadIdx.x == 0) losses[row] = 0.0;
    if (dlogits) store_zeros(vocab, cut, dlogits);
    return;
  }
  const float at_label = logits[label];  // before dlogits may overwrite it
  const Online total = block_total(scan_row(logits, vocab, cut), shared_memory<float>());
  if (threadIdx.x == 0) losses[row] = (double(total.top) - double(at_label)) + log(double(total.sum));
  if (dlogits) {
    const Slope slope{total.top, 1.0f / total.sum, grad_scale, label};
    store_gradient(logits, vocab, cut, slope, dlogits);
  }
}

__global__ void __launch_bounds__(kLossThreads)
    add_losses(int64_t rows, const double* losses, double* loss_sum) {
  double sum = 0.0;
  for (int64_t row = threadIdx.x; row < rows; row += kLossThreads) sum += losses[row];
  sum = block_sum(sum, shared_memory<double>());
  if (threadIdx.x == 0) *loss_sum += sum;
}

/// Long rows have a multiprocessor to themselves, so that most of those at work stay in L2 between the
/// passes.
unsigned threads_of_row(int64_t vocab) {
  const int64_t most = vocab < 64 * 1024 ? kMostThreads / 2 : kMostThreads;
  const int64_t useful = round_up_to_warps(ceil_div(vocab, kAccesses * kN));
  return unsigned(useful < most ? useful : most);
}

}  // namespace

size_t cross_entropy_scratch_bytes(int64_t rows) {
  return size_t(rows) * sizeof(double);
}

void cross_entropy(cudaStream_t stream, const CrossEntropy& c, const float* logits, const int32_t* labels,
                   double* loss_sum, void* dlogits, Scratch scratch) {
  if (c.rows == 0) return;
  HEADRACE_CHECK(scratch.bytes >= cross_entropy_scratch_bytes(c.rows), "scratch smaller than asked for");
  double* losses = reinterpret_cast<double*>(scratch.data);
  with_type(c.dtype, [&](auto type) {
    using T = decltype(type);
    launch(stream, cross_entropy_row<T>,
           {.grid = dim3(blocks(c.rows)),
            .block = dim3(threads_of_row(c.vocab)),
            .shared_bytes = sizeof(float) * (kMostThreads / kWarp)},
           c.vocab, c.grad_scale, logits, labels, losses, static_cast<T*>(dlogits));
  });
  launch(
      stream, add_losses,
      {.grid = dim3(1), .block = dim3(kLossThreads), .shared_bytes = sizeof(double) * (kLossThreads / kWarp)},
      c.rows, losses, loss_sum);
}

}  // namespace headrace::kernels::cuda
