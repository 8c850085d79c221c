// SPDX-License-Identifier: Apache-2.0
// The kernels of the host device, done when they return. Same arguments and meaning as the functions of the
// public headers, without the stream. Called from the compute stream's one thread, which opens the OpenMP
// team; no sum depends on the number of threads in it.
#pragma once

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"

namespace headrace::kernels::host {

/// How bf16 operands are multiplied: directly, or after conversion to fp32. `automatic` picks by
/// the CPU's features, the same for all shapes.
enum class Bf16Products : uint8_t { automatic, native, converted };
void gemm(const Gemm& g, Scratch scratch, Bf16Products how = Bf16Products::automatic);
size_t gemm_scratch_bytes(const Gemm& shape, Bf16Products how = Bf16Products::automatic);
void linear_forward(const Linear&, const void* x, const void* weight, const void* bias, void* y, Scratch);
void linear_backward_input(const Linear&, const void* dy, const void* weight, void* dx, Scratch);
void linear_backward_weight(const Linear&, const void* dy, const void* x, float* dweight, float* dbias,
                            Scratch);
void linear_gelu_forward(const Linear&, const void* x, const void* weight, const void* bias, void* z, void* y,
                         Scratch);
void linear_gelu_backward_input(const Linear&, const void* dy, const void* weight, const void* z, void* dz,
                                Scratch);
size_t linear_scratch_bytes(const Linear& shape);

void rms_norm_forward(const RmsNorm&, const void* x, const void* weight, void* y, float* rstd);
void rms_norm_backward(const RmsNorm&, const void* x, const void* weight, const float* rstd, const void* dy,
                       const void* residual_dx, void* dx, float* dweight, Scratch);
void layer_norm_forward(const LayerNorm&, const void* x, const void* weight, const void* bias, void* y,
                        float* mean, float* rstd);
void layer_norm_backward(const LayerNorm&, const void* x, const void* weight, const float* mean,
                         const float* rstd, const void* dy, const void* residual_dx, void* dx, float* dweight,
                         float* dbias, Scratch);
size_t norm_scratch_bytes(int64_t rows, int64_t cols);

void attention_forward(const Attention&, const void* qkv, void* out, float* lse, Scratch);
void attention_backward(const Attention&, const void* qkv, const void* out, const float* lse,
                        const void* dout, void* dqkv, Scratch);
size_t attention_scratch_bytes(const Attention& shape);
void rotary(const Rotary&, void* qkv);

void swiglu_forward(int64_t rows, int64_t cols, DType, const void* gate_up, void* y);
void swiglu_backward(int64_t rows, int64_t cols, DType, const void* gate_up, const void* dy, void* dgate_up);
void gelu_forward(int64_t elems, DType, const void* x, void* y);
void gelu_backward(int64_t elems, DType, const void* x, const void* dy, void* dx);
void add(int64_t elems, DType, const void* a, const void* b, void* y);
void embedding_forward(const Embedding&, const int32_t* tokens, const void* table, const void* positions,
                       void* y);
void embedding_backward(const Embedding&, const int32_t* tokens, const void* dy, float* dtable,
                        float* dpositions);
void cross_entropy(const CrossEntropy&, const float* logits, const int32_t* labels, double* loss_sum,
                   void* dlogits);
void cast(int64_t elems, DType from, const void* x, DType to, void* y);
void round_and_sum_squares(int64_t elems, const float* x, DType to, void* y, double* tile_sums);

}  // namespace headrace::kernels::host
