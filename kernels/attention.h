// SPDX-License-Identifier: Apache-2.0
// Causal grouped-query attention, forward and backward, and rotary positions. Scores never exist for all
// heads and queries at once: memory grows linearly in the sequence length.
#pragma once

#include "kernels/gemm.h"

namespace headrace::kernels {

/// qkv [batch*seq, (heads + 2 kv_heads) * head_dim]: q heads, then k heads, then v heads, in every row.
/// out [batch*seq, heads * head_dim]; lse fp32 [batch, heads, seq] (log of the softmax denominator).
/// Query head h reads kv head h / (heads / kv_heads). scale multiplies q.k (1/sqrt(head_dim) as a rule).
///
/// On tensor cores, scale * q.k must stay below 2^30 or so in magnitude.
///
/// Packed documents: with `cu_seqlens` a query attends to its own document only. cu_seqlens[documents + 1]
/// (in device memory, ascending, from 0 to batch * seq) are the rows at which documents begin; every multiple
/// of seq is among them, so that no document crosses from one sequence into the next.
struct Attention {
  int64_t batch, seq, heads, kv_heads, head_dim;
  float scale;
  DType dtype;
  const int32_t* cu_seqlens = nullptr;
  int64_t documents = 0;
};
void attention_forward(Stream&, const Attention&, const void* qkv, void* out, float* lse, Scratch);
/// dqkv has the layout of qkv.
void attention_backward(Stream&, const Attention&, const void* qkv, const void* out, const float* lse,
                        const void* dout, void* dqkv, Scratch);
size_t attention_scratch_bytes(DeviceKind kind, const Attention& shape);

/// Su et al. 2021, in the rotate-half layout: for i < head_dim/2, angle = position * theta^(-2i/head_dim),
///   x[i]' = x[i] cos - x[i+d/2] sin,   x[i+d/2]' = x[i+d/2] cos + x[i] sin.
/// Applied in place to the first `rotated_heads` heads of every row of qkv (heads + kv_heads rotates q and
/// k); position = row % seq. `inverse` rotates back, which is the backward pass.
struct Rotary {
  int64_t rows, seq, rotated_heads, row_stride, head_dim;
  float theta;
  DType dtype;
  bool inverse = false;
};
void rotary(Stream&, const Rotary&, void* qkv);

}  // namespace headrace::kernels
