// SPDX-License-Identifier: Apache-2.0
// Element by element loops (see vec.h for how this is compiled).
#pragma once

#include "kernels/host/simd/vec.h"

namespace headrace::kernels::host::HEADRACE_ISA {

template <class T>
void swiglu_forward(int64_t rows, int64_t cols, const void* gate_up, void* y) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* gate = static_cast<const T*>(gate_up) + row * 2 * cols;
    T* out = static_cast<T*>(y) + row * cols;
    for_vectors(cols, [&](int64_t i, auto lanes) {
      const Vec z = load(gate + i, lanes);
      store(out + i, z * sigmoid(z) * load(gate + cols + i, lanes), lanes);
    });
  }
}

template <class T>
void swiglu_backward(int64_t rows, int64_t cols, const void* gate_up, const void* dy, void* dgate_up) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* gate = static_cast<const T*>(gate_up) + row * 2 * cols;
    const T* dout = static_cast<const T*>(dy) + row * cols;
    T* dgate = static_cast<T*>(dgate_up) + row * 2 * cols;
    for_vectors(cols, [&](int64_t i, auto lanes) {
      const Vec z = load(gate + i, lanes);
      const Vec up = load(gate + cols + i, lanes);
      const Vec d = load(dout + i, lanes);
      const Vec s = sigmoid(z);
      store(dgate + i, d * up * s * (1.0f + z * (1.0f - s)), lanes);
      store(dgate + cols + i, d * z * s, lanes);
    });
  }
}

// 0.5 (1 + tanh(u)) = sigmoid(2u): the tanh form of gelu needs no tanh. 2u = kA x + kB x^3.
constexpr float kGeluA = 1.5957691216057308f;   // 2 sqrt(2/pi)
constexpr float kGeluB = 0.07135481282818225f;  // 2 sqrt(2/pi) 0.044715

template <class T>
void gelu_forward(int64_t elems, const void* x, void* y) {
  for_vectors(elems, [&](int64_t i, auto lanes) {
    const Vec v = load(static_cast<const T*>(x) + i, lanes);
    store(static_cast<T*>(y) + i, v * sigmoid(v * (kGeluA + kGeluB * (v * v))), lanes);
  });
}

template <class T>
void gelu_backward(int64_t elems, const void* x, const void* dy, void* dx) {
  for_vectors(elems, [&](int64_t i, auto lanes) {
    const Vec v = load(static_cast<const T*>(x) + i, lanes);
    const Vec s = sigmoid(v * (kGeluA + kGeluB * (v * v)));
    // s (1 - s) is 0 where |v| is large, and v^3 must not make it 0 * infinity there.
    const Vec flat = s * (1.0f - s);
    const Vec slope = v * (kGeluA + 3.0f * kGeluB * (v * v));
    const Vec derivative = s + (flat == 0.0f ? Vec{} : flat * slope);
    store(static_cast<T*>(dx) + i, load(static_cast<const T*>(dy) + i, lanes) * derivative, lanes);
  });
}

template <class T>
void add(int64_t elems, const void* a, const void* b, void* y) {
  for_vectors(elems, [&](int64_t i, auto lanes) {
    const Vec sum = load(static_cast<const T*>(a) + i, lanes) + load(static_cast<const T*>(b) + i, lanes);
    store(static_cast<T*>(y) + i, sum, lanes);
  });
}

template <class T>
void accumulate(int64_t elems, const void* x, float* sum) {
  for_vectors(elems, [&](int64_t i, auto lanes) {
    store(sum + i, load(sum + i, lanes) + load(static_cast<const T*>(x) + i, lanes), lanes);
  });
}

template <class From, class To>
void cast(int64_t elems, const void* x, void* y) {
  for_vectors(elems, [&](int64_t i, auto lanes) {
    store(static_cast<To*>(y) + i, load(static_cast<const From*>(x) + i, lanes), lanes);
  });
}

typedef double VecD __attribute__((vector_size(4 * HEADRACE_LANES)));
typedef float VecHalfF __attribute__((vector_size(2 * HEADRACE_LANES)));

/// The order of the sum is the same on every instruction set: element i goes to accumulator i
/// % 16, ascending, and the 16 are added as a tree (0+8, 1+9, ...; then 0+4, ...; 0+2, 1+3;
/// 0+1). Squares of floats are exact in double.
template <class To>
double round_and_sum_squares(int64_t elems, const float* x, void* y) {
  constexpr int64_t kAccumulators = 16;
  constexpr int64_t kDoubles = kLanes / 2;
  VecD sum[kAccumulators / kDoubles] = {};
  To* out = static_cast<To*>(y);
  const auto square_block = [&](const float* in) {
    for (int64_t j = 0; j < kAccumulators / kDoubles; ++j) {
      VecHalfF half;
      __builtin_memcpy(&half, in + j * kDoubles, sizeof(half));
      const VecD wide = __builtin_convertvector(half, VecD);
      sum[j] += wide * wide;
    }
  };
  int64_t i = 0;
  float block[kAccumulators];
  for (; i + kAccumulators <= elems; i += kAccumulators) {
    for (int64_t j = 0; j < kAccumulators; j += kLanes) {
      const Vec v = load(x + i + j);
      store(out + i + j, v);
      store(block + j, load(out + i + j));
    }
    square_block(block);
  }
  if (i < elems) {
    for (float& b : block) b = 0.0f;
    for_vectors(elems - i, [&](int64_t j, auto lanes) {
      store(out + i + j, load(x + i + j, lanes), lanes);
      store(block + j, load(out + i + j, lanes));
    });
    square_block(block);
  }
  double lane[kAccumulators];
  __builtin_memcpy(lane, sum, sizeof(lane));
  for (int64_t width = kAccumulators / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lane[j] += lane[j + width];
  }
  return lane[0];
}

template <class T>
void rotate(int64_t half, const float* cos, const float* sin, void* x) {
  T* lower = static_cast<T*>(x);
  T* upper = lower + half;
  for_vectors(half, [&](int64_t i, auto lanes) {
    const Vec a = load(lower + i, lanes);
    const Vec b = load(upper + i, lanes);
    const Vec c = load(cos + i, lanes);
    const Vec s = load(sin + i, lanes);
    store(lower + i, a * c - b * s, lanes);
    store(upper + i, b * c + a * s, lanes);
  });
}

}  // namespace headrace::kernels::host::HEADRACE_ISA
