// SPDX-License-Identifier: Apache-2.0
// Element by element kernels of the cuda device. One pass over memory, bounded by its bandwidth: a thread has
// several accesses on their way before it needs the first.
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.h"

namespace headrace::kernels::cuda {
namespace {

constexpr int kThreads = 256;

constexpr float kLog2e = 1.4426950408889634f;

/// 1 / (1 + 2^-t) where t = log2(e) x.
__device__ __forceinline__ float sigmoid_exp2(float t) {
  return reciprocal(1.0f + exp2f(-t));
}
__device__ __forceinline__ float sigmoid(float x) {
  return sigmoid_exp2(kLog2e * x);
}

// 0.5 (1 + tanh(u)) = sigmoid(2u): the tanh form of gelu needs no tanh. 2u = kGeluA x + kGeluB x^3.
constexpr float kGeluA = 1.5957691216057308f;   // 2 sqrt(2/pi)
constexpr float kGeluB = 0.07135481282818225f;  // 2 sqrt(2/pi) 0.044715

__device__ __forceinline__ float gelu_sigmoid(float x) {
  return sigmoid_exp2(x * fmaf(kLog2e * kGeluB, x * x, kLog2e * kGeluA));
}

struct Copy {
  __device__ float operator()(float x) const { return x; }
};
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Gelu {
  __device__ float operator()(float x) const { return x * gelu_sigmoid(x); }
};
struct GeluBackward {
  __device__ float operator()(float x, float dy) const {
    const float s = gelu_sigmoid(x);
    // s (1 - s) is 0 where |x| is large, and x^3 must not make it 0 * infinity there.
    const float flat = s * (1.0f - s);
    const float slope = x * fmaf(3.0f * kGeluB, x * x, kGeluA);
    return dy * (flat == 0.0f ? s : fmaf(flat, slope, s));
  }
};

template <class X, int kOperands>
struct Operands {
  const X* at[kOperands];
};

/// y[i] = op(x[0][i], ...) for kAccesses accesses of kN elements per thread; a block's are consecutive.
template <int kN, int kAccesses, class Op, class Y, class X, int kOperands>
__global__ void __launch_bounds__(kThreads) map(int64_t elems, Operands<X, kOperands> x, Y* y) {
  const int64_t first = (int64_t(blockIdx.x) * (kAccesses * kThreads) + threadIdx.x) * kN;
  Elems<X, kN> in[kAccesses][kOperands];
#pragma unroll
  for (int k = 0; k < kAccesses; ++k) {
    const int64_t i = first + k * kThreads * kN;
#pragma unroll
    for (int operand = 0; operand < kOperands; ++operand) {
      if (i < elems) in[k][operand] = load_elems<kN>(x.at[operand] + i, elems - i);
    }
  }
#pragma unroll
  for (int k = 0; k < kAccesses; ++k) {
    const int64_t i = first + k * kThreads * kN;
    if (i >= elems) return;
    float values[kOperands][kN];
#pragma unroll
    for (int operand = 0; operand < kOperands; ++operand) widen_elems(in[k][operand], values[operand]);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if constexpr (kOperands == 1) {
        values[0][j] = Op()(values[0][j]);
      } else {
        values[0][j] = Op()(values[0][j], values[1][j]);
      }
    }
    store_elems(y + i, values[0], elems - i);
  }
}

/// kWide elements in an access, when addresses allow it.
template <int kWide, class Op, class Y, class X, class... Pointers>
void launch_map(const LaunchOn& on, int64_t elems, Y* y, const X* first, const Pointers*... others) {
  constexpr int kOperands = 1 + int(sizeof...(others));
  constexpr int kAccesses = 4;
  if (elems == 0) return;
  const bool wide = aligned_to(kWide * sizeof(X), first, others...) && aligned_to(kWide * sizeof(Y), y);
  with_width<kWide>(wide, [&](auto width) {
    constexpr int kN = decltype(width)::value;
    launch(
        on, map<kN, kAccesses, Op, Y, X, kOperands>,
        {.grid = dim3(blocks(ceil_div(elems, int64_t(kAccesses) * kThreads * kN))), .block = dim3(kThreads)},
        elems, Operands<X, kOperands>{{first, others...}}, y);
  });
}

/// One operation on operands of one format.
template <class Op, class... Inputs>
void map_elements(const LaunchOn& on, int64_t elems, DType dtype, void* y, const Inputs*... x) {
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    launch_map<kWidest<T>, Op>(on, elems, static_cast<T*>(y), static_cast<const T*>(x)...);
  });
}

template <class T, int kN>
struct GatedAccess {
  Elems<T, kN> gate, up;
};

/// `per_row` accesses are the gates of a row, as many are its ups.
template <int kN, class T>
__device__ __forceinline__ GatedAccess<T, kN> load_gated(const T* gate_up, MatrixAccess at,
                                                         unsigned per_row) {
  const T* gate = gate_up + (at.row * 2 * per_row + at.index) * kN;
  return {load_elems<kN>(gate), load_elems<kN>(gate + int64_t(per_row) * kN)};
}

constexpr int kGatedAccesses = 2;

template <int kN, class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_forward_kernel(int64_t accesses, unsigned per_row, const T* gate_up, T* y) {
  const int64_t first = int64_t(blockIdx.x) * (kGatedAccesses * kThreads);
  GatedAccess<T, kN> in[kGatedAccesses];
#pragma unroll
  for (int k = 0; k < kGatedAccesses; ++k) {
    const unsigned offset = k * kThreads + threadIdx.x;
    if (first + offset < accesses)
      in[k] = load_gated<kN>(gate_up, matrix_access(first, offset, per_row), per_row);
  }
#pragma unroll
  for (int k = 0; k < kGatedAccesses; ++k) {
    const unsigned offset = k * kThreads + threadIdx.x;
    if (first + offset >= accesses) return;
    float gate[kN], up[kN];
    widen_elems(in[k].gate, gate);
    widen_elems(in[k].up, up);
#pragma unroll
    for (int i = 0; i < kN; ++i) gate[i] = gate[i] * sigmoid(gate[i]) * up[i];
    store_elems(y + (first + offset) * kN, narrow_elems<T>(gate));
  }
}

template <int kN, class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(int64_t accesses, unsigned per_row, const T* gate_up, const T* dy, T* dgate_up) {
  const int64_t first = int64_t(blockIdx.x) * (kGatedAccesses * kThreads);
  GatedAccess<T, kN> in[kGatedAccesses];
  Elems<T, kN> din[kGatedAccesses];
#pragma unroll
  for (int k = 0; k < kGatedAccesses; ++k) {
    const unsigned offset = k * kThreads + threadIdx.x;
    if (first + offset >= accesses) continue;
    in[k] = load_gated<kN>(gate_up, matrix_access(first, offset, per_row), per_row);
    din[k] = load_elems<kN>(dy + (first + offset) * kN);
  }
#pragma unroll
  for (int k = 0; k < kGatedAccesses; ++k) {
    const unsigned offset = k * kThreads + threadIdx.x;
    if (first + offset >= accesses) return;
    float gate[kN], up[kN], d[kN];
    widen_elems(in[k].gate, gate);
    widen_elems(in[k].up, up);
    widen_elems(din[k], d);
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      const float z = gate[i], s = sigmoid(z);
      gate[i] = d[i] * up[i] * s * fmaf(z, 1.0f - s, 1.0f);
      up[i] = d[i] * z * s;
    }
    const MatrixAccess at = matrix_access(first, offset, per_row);
    T* dgate = dgate_up + (at.row * 2 * per_row + at.index) * kN;
    store_elems(dgate, narrow_elems<T>(gate));
    store_elems(dgate + int64_t(per_row) * kN, narrow_elems<T>(up));
  }
}

LaunchShape gated_shape(int64_t accesses) {
  return {.grid = dim3(blocks(ceil_div(accesses, kGatedAccesses * kThreads))), .block = dim3(kThreads)};
}

}  // namespace

void swiglu_forward(cudaStream_t stream, int64_t rows, int64_t cols, DType dtype, const void* gate_up,
                    void* y) {
  if (rows == 0 || cols == 0) return;
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    with_width<kWidest<T>>(packable<T>(cols, gate_up, y), [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(stream, swiglu_forward_kernel<kN, T>, gated_shape(rows * (cols / kN)), rows * (cols / kN),
             unsigned(cols / kN), static_cast<const T*>(gate_up), static_cast<T*>(y));
    });
  });
}

void swiglu_backward(cudaStream_t stream, int64_t rows, int64_t cols, DType dtype, const void* gate_up,
                     const void* dy, void* dgate_up) {
  if (rows == 0 || cols == 0) return;
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    with_width<kWidest<T>>(packable<T>(cols, gate_up, dy, dgate_up), [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(stream, swiglu_backward_kernel<kN, T>, gated_shape(rows * (cols / kN)), rows * (cols / kN),
             unsigned(cols / kN), static_cast<const T*>(gate_up), static_cast<const T*>(dy),
             static_cast<T*>(dgate_up));
    });
  });
}

void gelu_forward(cudaStream_t stream, int64_t elems, DType dtype, const void* x, void* y) {
  map_elements<Gelu>(stream, elems, dtype, y, x);
}

void gelu_backward(cudaStream_t stream, int64_t elems, DType dtype, const void* x, const void* dy, void* dx) {
  map_elements<GeluBackward>(stream, elems, dtype, dx, x, dy);
}

void add(cudaStream_t stream, int64_t elems, DType dtype, const void* a, const void* b, void* y) {
  map_elements<Add>(stream, elems, dtype, y, a, b);
}

void cast(cudaStream_t stream, int64_t elems, DType from, const void* x, DType to, void* y) {
  with_type(from, [&](auto from_type) {
    with_type(to, [&](auto to_type) {
      using X = decltype(from_type);
      using Y = decltype(to_type);
      // As many elements on both sides, so that both are contiguous over a warp.
      constexpr int kWide = kWidest<X> < kWidest<Y> ? kWidest<X> : kWidest<Y>;
      launch_map<kWide, Copy>(stream, elems, static_cast<Y*>(y), static_cast<const X*>(x));
    });
  });
}

}  // namespace headrace::kernels::cuda
