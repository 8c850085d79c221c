// SPDX-License-Identifier: Apache-2.0
// AdamW of the cuda device: the update of headrace/adam.h with its roundings, in its order. Every operation
// is written as one that rounds to nearest, so that nothing is contracted: the bits are those of the CPU.
#include <algorithm>

#include "headrace/error.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.h"

namespace headrace::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAccesses = 2;
/// In an access: 16 bytes of the moments, 8 of bf16 and of lower halves.
constexpr int kWide = kWidest<float>;

struct State {
  float w, m, v;
};

__device__ __forceinline__ State updated(State old, float gradient, const adam::StepScalars& s) {
  const float g = __fmul_rn(gradient, s.grad_scale);
  const float m = __fmaf_rn(s.one_minus_beta1, __fsub_rn(g, old.m), old.m);
  const float v = __fmaf_rn(s.one_minus_beta2, __fmaf_rn(g, g, -old.v), old.v);
  const float q = __fdiv_rn(m, __fmaf_rn(__fsqrt_rn(v), s.inv_sqrt_bias2, s.eps));
  const float w = __fadd_rn(old.w, __fmaf_rn(q, s.neg_step_size, __fmul_rn(old.w, s.neg_lr_decay)));
  return {w, m, v};
}

/// fp32 weights, or the two halves of a split master.
template <class T>
struct Master {
  T* weights;
  uint16_t* lo;
};

template <class T, int kN>
struct HeldMaster {
  Elems<float, kN> w;

  __device__ __forceinline__ void load(const Master<T>& from, int64_t i) {
    w = load_elems<kN>(from.weights + i);
  }
  __device__ __forceinline__ void merge(float (&to)[kN]) const { widen_elems(w, to); }
  __device__ __forceinline__ static void store(const Master<T>& to, int64_t i, const float (&from)[kN]) {
    store_elems(to.weights + i, narrow_elems<float>(from));
  }
};
template <int kN>
struct HeldMaster<bf16, kN> {
  Elems<uint16_t, kN> hi, lo;

  __device__ __forceinline__ void load(const Master<bf16>& from, int64_t i) {
    hi = load_elems<kN>(reinterpret_cast<const uint16_t*>(from.weights) + i);
    lo = load_elems<kN>(from.lo + i);
  }
  __device__ __forceinline__ void merge(float (&to)[kN]) const {
#pragma unroll
    for (int j = 0; j < kN; ++j) to[j] = merge_master({bf16(hi.raw[j]), lo.raw[j]});
  }
  __device__ __forceinline__ static void store(const Master<bf16>& to, int64_t i, const float (&from)[kN]) {
    Elems<uint16_t, kN> hi, lo;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const SplitMaster master = split_master(from[j]);
      hi.raw[j] = uint16_t(master.hi);
      lo.raw[j] = master.lo;
    }
    store_elems(reinterpret_cast<uint16_t*>(to.weights) + i, hi);
    store_elems(to.lo + i, lo);
  }
};

/// All that an access reads.
template <class T, int kN>
struct HeldState {
  HeldMaster<T, kN> master;
  Elems<float, kN> m, v;
  Elems<T, kN> gradient;
};

template <class T>
struct Update {
  int64_t count;
  Master<T> master;
  float *m, *v;
  const T* gradient;
  adam::StepScalars scalars;
};

template <int kN, class T>
__device__ __forceinline__ HeldState<T, kN> load_state(const Update<T>& u, int64_t i) {
  HeldState<T, kN> in;
  in.master.load(u.master, i);
  in.m = load_elems<kN>(u.m + i);
  in.v = load_elems<kN>(u.v + i);
  in.gradient = load_elems<kN>(u.gradient + i);
  return in;
}

template <int kN, class T>
__device__ __forceinline__ void update_state(const Update<T>& u, int64_t i, const HeldState<T, kN>& in) {
  float w[kN], m[kN], v[kN], gradient[kN];
  in.master.merge(w);
  widen_elems(in.m, m);
  widen_elems(in.v, v);
  widen_elems(in.gradient, gradient);
#pragma unroll
  for (int j = 0; j < kN; ++j) {
    const State now = updated({w[j], m[j], v[j]}, gradient[j], u.scalars);
    w[j] = now.w;
    m[j] = now.m;
    v[j] = now.v;
  }
  HeldMaster<T, kN>::store(u.master, i, w);
  store_elems(u.m + i, narrow_elems<float>(m));
  store_elems(u.v + i, narrow_elems<float>(v));
}

/// What one launch updates: a row of blocks each, as long as the longest needs.
template <class T>
struct Updates {
  static constexpr int kMost = 32;  // arguments of a kernel are 4 KiB at most
  Update<T> each[kMost];
};

/// Accesses of kN elements, then the count % kN elements that fill none, one by one.
template <int kN, class T>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const __grid_constant__ Updates<T> updates) {
  const Update<T>& u = updates.each[blockIdx.y];
  const int64_t whole = u.count / kN;
  const int64_t first = int64_t(blockIdx.x) * (kAccesses * kThreads) + threadIdx.x;
  HeldState<T, kN> in[kAccesses];
#pragma unroll
  for (int k = 0; k < kAccesses; ++k) {
    if (first + k * kThreads < whole) in[k] = load_state<kN>(u, (first + k * kThreads) * kN);
  }
#pragma unroll
  for (int k = 0; k < kAccesses; ++k) {
    if (first + k * kThreads < whole) update_state(u, (first + k * kThreads) * kN, in[k]);
  }
  if constexpr (kN > 1) {
    const int64_t i = whole * kN + threadIdx.x;
    if (blockIdx.x == 0 && i < u.count) update_state(u, i, load_state<1>(u, i));
  }
}

template <class T>
Update<T> update_of(const AdamwSpan& span) {
  return {.count = span.count,
          .master = {static_cast<T*>(span.weights), span.lo},
          .m = span.m,
          .v = span.v,
          .gradient = static_cast<const T*>(span.gradient),
          .scalars = span.scalars};
}

template <class T>
bool is_wide(const AdamwSpan& span) {
  return aligned_to(kWide * sizeof(float), span.m, span.v) &&
         aligned_to(kWide * sizeof(T), span.weights, span.gradient) &&
         aligned_to(kWide * sizeof(uint16_t), span.lo);
}

template <class T>
void update_spans(cudaStream_t stream, std::span<const AdamwSpan> spans) {
  Updates<T> updates{};
  bool wide = true;
  int64_t longest = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    HEADRACE_CHECK(spans[i].dtype == spans[0].dtype, "spans of one launch have one type");
    updates.each[i] = update_of<T>(spans[i]);
    wide = wide && is_wide<T>(spans[i]);
    longest = spans[i].count > longest ? spans[i].count : longest;
  }
  if (longest == 0) return;
  with_width<kWide>(wide, [&](auto width) {
    constexpr int kN = decltype(width)::value;
    const int64_t per_block = int64_t(kAccesses) * kThreads * kN;
    launch(
        stream, adamw_kernel<kN, T>,
        {.grid = dim3(blocks(ceil_div(longest, per_block)), unsigned(spans.size())), .block = dim3(kThreads)},
        updates);
  });
}

}  // namespace

void adamw(cudaStream_t stream, std::span<const AdamwSpan> spans) {
  while (!spans.empty()) {
    const auto now = spans.first(std::min(spans.size(), size_t(Updates<float>::kMost)));
    with_type(now[0].dtype, [&](auto type) { update_spans<decltype(type)>(stream, now); });
    spans = spans.subspan(now.size());
  }
}

}  // namespace headrace::kernels::cuda
