// SPDX-License-Identifier: Apache-2.0
// One pre-norm transformer layer of either family, forward and backward:
//   h = x + out(attention(qkv(norm(x)))),   y = h + down(act(up(norm(h))))
// Forward leaves qkv (after the rotation), the attention's output and log-sum-exp, h and the columns before
// the activation: what costs a matrix product or an attention to make again. Norms and the activation are one
// pass over memory and are made again in backward (the activation from its argument as it was rounded). Kept
// by the model, one object for all layers.
#pragma once

#include "kernels/attention.h"
#include "model/parts.h"

namespace headrace {

/// Offsets of what forward keeps in StageMemory::saved.
struct LayerSaved {
  size_t qkv, attention, lse, h, up;
  size_t bytes;
};

/// Offsets in StageMemory::scratch.
struct LayerScratch {
  size_t narrow;      ///< [rows, hidden]: normed input or the gradient that arrives there
  size_t mean, rstd;  ///< [rows]
  size_t activated;   ///< [rows, ffn]: the activation's output or, for SwiGLU, its gradient
  size_t wide;        ///< [rows, max(qkv, up)]: gradients of these two; unused in forward
  size_t kernel;      ///< what the kernels ask for
  size_t kernel_bytes;
  size_t bytes;
};

struct LayerMemory {
  int64_t batch = 0, seq = 0;
  LayerSaved saved{};
  LayerScratch scratch{};
};

class Layer {
 public:
  /// Appends the layer's segments to `unit`.
  Layer(const Architecture& architecture, DType dtype, DeviceKind device, UnitDraft& unit);

  [[nodiscard]] LayerMemory memory(int64_t batch, int64_t seq) const;
  void forward(Stream&, const LayerMemory&, const WeightView&, const void* x, void* y, StageMemory) const;
  /// dx may be dy. `recompute` fills `saved` from x first, without the layer's output.
  void backward(Stream&, const LayerMemory&, const WeightView&, const GradientView&, const void* x,
                const void* dy, void* dx, bool recompute, StageMemory) const;

 private:
  struct Buffers;
  Buffers carve(const LayerMemory&, StageMemory) const;
  void fill_saved(const Pass&, const LayerMemory&, const Buffers&, const void* x) const;
  void backward_mlp(const Pass&, const Buffers&, const void* dy, void* dh) const;
  void backward_attention(const Pass&, const LayerMemory&, const Buffers&, const void* x, void* dx) const;
  void up_forward(const Pass&, const Buffers&) const;
  void activate(const Pass&, const Buffers&) const;
  void down_backward(const Pass&, const Buffers&, const void* dy) const;
  void rotate(const Pass&, int64_t seq, void* qkv, bool inverse) const;
  [[nodiscard]] kernels::Attention attention_shape(int64_t batch, int64_t seq) const;
  [[nodiscard]] size_t kernel_scratch_bytes(int64_t batch, int64_t seq) const;

  Architecture architecture_;
  DType dtype_;
  DeviceKind device_;
  // In the order of the segments.
  Norm attention_norm_;
  LinearMap qkv_, out_;
  Norm mlp_norm_;
  LinearMap up_, down_;
};

}  // namespace headrace
