// SPDX-License-Identifier: Apache-2.0
// The serial inner loops of the host kernels, compiled once per instruction set from the same source
// (kernels/host/simd/) and reached through a table picked at run time. Arrays are indexed by DType.
//
// Environment variable HEADRACE_ISA = scalar | avx2 | avx512 overrides the choice (scalar is plain x86-64).
// The tables agree within rounding, not bit for bit; round_and_sum_squares and cast agree exactly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/dtype.h"

namespace headrace::kernels::host {

enum class Isa : uint8_t { scalar, avx2, avx512 };

struct NormRows {
  int64_t rows, cols;
  float eps;
  const void* x;
  const void* weight;
  const void* bias;  ///< layer norm forward only
  void* y;
  float* mean;  ///< layer norm only
  float* rstd;
};

struct NormBackwardRows {
  int64_t rows, cols;
  const void* x;
  const void* weight;
  const float* mean;  ///< layer norm only
  const float* rstd;
  const void* dy;
  const void* residual_dx;  ///< or none
  void* dx;
  float* dweight;  ///< this group's share, overwritten
  float* dbias;    ///< layer norm only, overwritten
};

/// One (document, head) forward or one (document, kv head) backward; pointers are at the first row.
struct AttentionHead {
  int64_t seq, head_dim, group;  ///< seq: rows of the document; group: query heads of one kv head (backward)
  float scale;
  const void *q, *k, *v;
  int64_t qkv_stride, out_stride;  ///< elements from row to row
  void* out;                       ///< forward: written; backward: read
  float* lse;                      ///< forward: written; backward: read
  int64_t lse_stride = 0;          ///< from one query head of the group to the next (backward)
  const void* dout;
  void *dq, *dk, *dv;
  float* work;  ///< attention_work_floats, 64-byte aligned
};

/// Rows of queries and of keys in one tile of scores.
constexpr int64_t kAttentionTile = 64;
constexpr int64_t attention_padded(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}
constexpr int64_t attention_work_floats(int64_t seq, int64_t head_dim, bool backward) {
  const int64_t tiles = (seq + kAttentionTile - 1) / kAttentionTile;
  const int64_t tile_floats = kAttentionTile * attention_padded(head_dim);
  const int64_t scores = kAttentionTile * kAttentionTile;
  return backward ? (5 * tiles + 3) * tile_floats + 2 * scores : (2 * tiles + 2) * tile_floats + scores;
}

struct IsaKernels {
  void (*swiglu_forward[2])(int64_t rows, int64_t cols, const void* gate_up, void* y);
  void (*swiglu_backward[2])(int64_t rows, int64_t cols, const void* gate_up, const void* dy, void* dgate_up);
  void (*gelu_forward[2])(int64_t elems, const void* x, void* y);
  void (*gelu_backward[2])(int64_t elems, const void* x, const void* dy, void* dx);
  void (*add[2])(int64_t elems, const void* a, const void* b, void* y);
  /// sum[i] += x[i]
  void (*accumulate[2])(int64_t elems, const void* x, float* sum);
  void (*cast[2][2])(int64_t elems, const void* x, void* y);  ///< [from][to]
  /// Writes x rounded to y; returns the sum of squares of y.
  double (*round_and_sum_squares[2])(int64_t elems, const float* x, void* y);
  /// x[i], x[i + half] of one head; sign of sin decides the direction.
  void (*rotate[2])(int64_t half, const float* cos, const float* sin, void* x);
  /// Loss of one row; writes dlogits when given. label < 0: only the gradient of an ignored row.
  double (*cross_entropy_row[2])(int64_t vocab, float grad_scale, const float* logits, int32_t label,
                                 void* dlogits);
  void (*rms_norm_forward[2])(const NormRows&);
  void (*rms_norm_backward[2])(const NormBackwardRows&);
  void (*layer_norm_forward[2])(const NormRows&);
  void (*layer_norm_backward[2])(const NormBackwardRows&);
  void (*attention_forward[2])(const AttentionHead&);
  void (*attention_backward[2])(const AttentionHead&);
};

/// Whether this CPU (and build) can run `isa`.
bool supported(Isa isa);
/// The table of one instruction set; aborts when it is not supported.
const IsaKernels& isa_kernels(Isa isa);
/// The table in use on this machine. Throws ConfigError when HEADRACE_ISA asks for what cannot be had.
const IsaKernels& isa_kernels();

namespace isa_scalar {
extern const IsaKernels kKernels;
}
namespace isa_avx2 {
extern const IsaKernels kKernels;
}
namespace isa_avx512 {
extern const IsaKernels kKernels;
}

}  // namespace headrace::kernels::host
