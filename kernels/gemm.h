// SPDX-License-Identifier: Apache-2.0
// Matrix products on a stream. Row-major; operands fp32 or bf16, accumulation in fp32, bf16 results rounded
// once. Behind this interface are oneDNN on the host (kernels/host) and cuBLASLt on GPUs (kernels/cuda). The
// order of every sum depends on shapes and the machine only, never on budgets or placement; on GPUs also on
// whether addresses are multiples of 16 bytes, which planned memory makes true or false by shape.
//
// All functions enqueue and return: operands and scratch stay as they are until the stream has got there, and
// scratch may be shared by calls on one stream. Outputs are not inputs, unless said otherwise. They throw
// DeviceError when the library fails; a scratch that is too small aborts. Calls on different streams may run
// concurrently.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/dtype.h"
#include "headrace/stream.h"

namespace headrace::kernels {

/// Device memory a kernel may use while it runs; sized by the *_scratch_bytes functions and the plan.
struct Scratch {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// C[m,n] (+)= op(A)[m,k] op(B)[k,n] (+ bias[n]).  op(A)[i,p] = trans_a ? A[p*lda + i] : A[i*lda + p], op(B)
/// alike.
struct Gemm {
  int64_t m, n, k;
  const void* a;
  int64_t lda;
  bool trans_a = false;
  const void* b;
  int64_t ldb;
  bool trans_b = false;
  DType in;  ///< of A, B and bias
  void* c;
  int64_t ldc;
  DType out;
  bool accumulate = false;     ///< C += instead of C =; `out` must be f32
  const void* bias = nullptr;  ///< [n] or none
};

void gemm(Stream& stream, const Gemm& g, Scratch scratch);
size_t gemm_scratch_bytes(DeviceKind kind, const Gemm& shape);  ///< pointers are ignored

// The three products of a linear layer y[rows,out] = x[rows,in] W[out,in]^T (+ bias[out]).
struct Linear {
  int64_t rows, in_features, out_features;
  DType dtype;  ///< of x, W, bias, y, dy, dx; dW and dbias are fp32
};
void linear_forward(Stream&, const Linear&, const void* x, const void* weight, const void* bias, void* y,
                    Scratch);
/// dx = dy W
void linear_backward_input(Stream&, const Linear&, const void* dy, const void* weight, void* dx, Scratch);
/// dW += dy^T x; dbias += column sums of dy when dbias is given
void linear_backward_weight(Stream&, const Linear&, const void* dy, const void* x, float* dweight,
                            float* dbias, Scratch);

// A linear layer and the gelu (kernels/pointwise.h) after it. On GPUs gelu is the product's epilogue where
// cuBLASLt has one (bf16, addresses and rows of multiples of 16 bytes): one pass over memory less, and y is
// rounded once, from the sum in fp32. Elsewhere gelu is a pass of its own, from z as it was rounded.
/// z = x W^T (+ bias), kept for backward; y = gelu(z). Both [rows, out].
void linear_gelu_forward(Stream&, const Linear&, const void* x, const void* weight, const void* bias, void* z,
                         void* y, Scratch);
/// Of the linear layer whose input is gelu(z): dz = (dy W) gelu'(z), both [rows, in].
void linear_gelu_backward_input(Stream&, const Linear&, const void* dy, const void* weight, const void* z,
                                void* dz, Scratch);
/// Enough for all five.
size_t linear_scratch_bytes(DeviceKind kind, const Linear& shape);

}  // namespace headrace::kernels
