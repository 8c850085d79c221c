// SPDX-License-Identifier: Apache-2.0
// The kernels of the cuda device: same arguments and meaning as the functions of kernels/*.h, enqueued on a
// CUDA stream. Called by the dispatch files only. Results are the same bits on every run: sums have a fixed
// order, which depends on shapes and on whether addresses are multiples of 16 bytes (of planned memory, they
// are by shape), and no floating-point atomics are used.
#pragma once

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"

// As <cuda_runtime.h> has it; that header is not needed to call a kernel.
typedef struct CUstream_st* cudaStream_t;

namespace headrace::kernels::cuda {

void gemm(cudaStream_t, const Gemm&, Scratch);
size_t gemm_scratch_bytes(const Gemm& shape);
void linear_forward(cudaStream_t, const Linear&, const void* x, const void* weight, const void* bias, void* y,
                    Scratch);
void linear_backward_input(cudaStream_t, const Linear&, const void* dy, const void* weight, void* dx,
                           Scratch);
void linear_backward_weight(cudaStream_t, const Linear&, const void* dy, const void* x, float* dweight,
                            float* dbias, Scratch);
void linear_gelu_forward(cudaStream_t, const Linear&, const void* x, const void* weight, const void* bias,
                         void* z, void* y, Scratch);
void linear_gelu_backward_input(cudaStream_t, const Linear&, const void* dy, const void* weight,
                                const void* z, void* dz, Scratch);
size_t linear_scratch_bytes(const Linear& shape);
/// sums[cols] += column sums of x [rows, cols].
void add_column_sums(cudaStream_t, int64_t rows, int64_t cols, DType, const void* x, float* sums, Scratch);
size_t column_sums_scratch_bytes(int64_t rows, int64_t cols);

void rms_norm_forward(cudaStream_t, const RmsNorm&, const void* x, const void* weight, void* y, float* rstd);
void rms_norm_backward(cudaStream_t, const RmsNorm&, const void* x, const void* weight, const float* rstd,
                       const void* dy, const void* residual_dx, void* dx, float* dweight, Scratch);
void layer_norm_forward(cudaStream_t, const LayerNorm&, const void* x, const void* weight, const void* bias,
                        void* y, float* mean, float* rstd);
void layer_norm_backward(cudaStream_t, const LayerNorm&, const void* x, const void* weight, const float* mean,
                         const float* rstd, const void* dy, const void* residual_dx, void* dx, float* dweight,
                         float* dbias, Scratch);
size_t norm_scratch_bytes(int64_t rows, int64_t cols);

void attention_forward(cudaStream_t, const Attention&, const void* qkv, void* out, float* lse, Scratch);
void attention_backward(cudaStream_t, const Attention&, const void* qkv, const void* out, const float* lse,
                        const void* dout, void* dqkv, Scratch);
size_t attention_scratch_bytes(const Attention& shape);
void rotary(cudaStream_t, const Rotary&, void* qkv);

void swiglu_forward(cudaStream_t, int64_t rows, int64_t cols, DType, const void* gate_up, void* y);
void swiglu_backward(cudaStream_t, int64_t rows, int64_t cols, DType, const void* gate_up, const void* dy,
                     void* dgate_up);
void gelu_forward(cudaStream_t, int64_t elems, DType, const void* x, void* y);
void gelu_backward(cudaStream_t, int64_t elems, DType, const void* x, const void* dy, void* dx);
void add(cudaStream_t, int64_t elems, DType, const void* a, const void* b, void* y);
void embedding_forward(cudaStream_t, const Embedding&, const int32_t* tokens, const void* table,
                       const void* positions, void* y);
void embedding_backward(cudaStream_t, const Embedding&, const int32_t* tokens, const void* dy, float* dtable,
                        float* dpositions);
void cross_entropy(cudaStream_t, const CrossEntropy&, const float* logits, const int32_t* labels,
                   double* loss_sum, void* dlogits, Scratch);
size_t cross_entropy_scratch_bytes(int64_t rows);
void cast(cudaStream_t, int64_t elems, DType from, const void* x, DType to, void* y);
void round_and_sum_squares(cudaStream_t, int64_t elems, const float* x, DType to, void* y, double* tile_sums);

void adamw(cudaStream_t, std::span<const AdamwSpan> spans);

}  // namespace headrace::kernels::cuda
