// SPDX-License-Identifier: Apache-2.0
// Element by element operations, embedding, and casts. Arithmetic in fp32, one rounding at the store.
#pragma once

#include "kernels/gemm.h"

namespace headrace::kernels {

/// Shazeer 2020. gate_up [rows, 2*cols] (gate first); y = silu(gate) * up, silu(z) = z / (1 + exp(-z)).
void swiglu_forward(Stream&, int64_t rows, int64_t cols, DType, const void* gate_up, void* y);
void swiglu_backward(Stream&, int64_t rows, int64_t cols, DType, const void* gate_up, const void* dy,
                     void* dgate_up);

/// tanh form (Hendrycks & Gimpel 2016): y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
/// dx may be dy.
void gelu_forward(Stream&, int64_t elems, DType, const void* x, void* y);
void gelu_backward(Stream&, int64_t elems, DType, const void* x, const void* dy, void* dx);

/// y = a + b; y may be a or b.
void add(Stream&, int64_t elems, DType, const void* a, const void* b, void* y);

/// y[row] = table[tokens[row]] (+ positions[row % seq] when given). tokens in [0, vocab).
struct Embedding {
  int64_t rows, seq, cols, vocab;
  DType dtype;
};
void embedding_forward(Stream&, const Embedding&, const int32_t* tokens, const void* table,
                       const void* positions, void* y);
/// dtable [vocab, cols] += , dpositions [seq, cols] += (when given), in fp32, rows added in ascending order.
void embedding_backward(Stream&, const Embedding&, const int32_t* tokens, const void* dy, float* dtable,
                        float* dpositions);

/// Label of a target that does not count.
constexpr int32_t kIgnoreLabel = -100;

/// Loss of a chunk of rows, forward and backward in one pass:
///   loss_sum += sum over counted rows of (logsumexp(logits[row]) - logits[row, label])   (double)
///   dlogits  = (softmax(logits) - onehot(label)) * grad_scale, 0 for ignored rows        (when dlogits is
///   given)
/// logits fp32 [rows, vocab]; dlogits [rows, vocab] of `dtype`, may be the same memory as logits when dtype
/// is f32.
struct CrossEntropy {
  int64_t rows, vocab;
  float grad_scale;
  DType dtype;
};
void cross_entropy(Stream&, const CrossEntropy&, const float* logits, const int32_t* labels, double* loss_sum,
                   void* dlogits, Scratch);
size_t cross_entropy_scratch_bytes(DeviceKind kind, int64_t rows);

void cast(Stream&, int64_t elems, DType from, const void* x, DType to, void* y);

/// Gradient hand-over: y = x rounded to `to` (fp32 accumulator -> gradient format), and per tile of
/// kNormTileElems elements of y the sum of squares (double, of the rounded values, in a fixed order) into
/// tile_sums[tile]. A non-finite element makes its tile's sum non-finite.
constexpr int64_t kNormTileElems = 64 * 1024;
void round_and_sum_squares(Stream&, int64_t elems, const float* x, DType to, void* y, double* tile_sums);

}  // namespace headrace::kernels
