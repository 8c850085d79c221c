// SPDX-License-Identifier: Apache-2.0
// The two ways attention is computed; attention.cpp picks one and has checked the shape. Flash: bf16 on
// tensor cores, head_dim 64, 96 or 128, every pointer 16-byte aligned. Plain: fp32 arithmetic for all else.
#pragma once

#include "headrace/dtype.h"
#include "kernels/attention.h"
#include "kernels/cuda/cuda_kernels.h"

namespace headrace::kernels::cuda {

constexpr int64_t kMaxHeadDim = 256;

void flash_forward(cudaStream_t, const Attention&, const bf16* qkv, bf16* out, float* lse);
/// delta: fp32 [batch, heads, seq], the sums over a head of dout * out.
void flash_backward(cudaStream_t, const Attention&, const bf16* qkv, const float* lse, const float* delta,
                    const bf16* dout, bf16* dqkv);

void plain_forward(cudaStream_t, const Attention&, const void* qkv, void* out, float* lse);
void plain_backward(cudaStream_t, const Attention&, const void* qkv, const float* lse, const float* delta,
                    const void* dout, void* dqkv);

void attention_delta(cudaStream_t, const Attention&, const void* out, const void* dout, float* delta);

}  // namespace headrace::kernels::cuda
