// SPDX-License-Identifier: Apache-2.0
#include "model/layer.h"

#include <algorithm>
#include <cmath>

#include "kernels/pointwise.h"
#include "model/carver.h"

namespace headrace {
namespace {

/// Projections onto the residual stream start smaller, so that its variance does not grow with depth.
double residual_stddev(const ModelConfig& config) {
  return kInitStddev / std::sqrt(2.0 * double(config.layers));
}

kernels::Scratch kernel_scratch(const LayerMemory& memory, StageMemory block) {
  return {block.scratch + memory.scratch.kernel, memory.scratch.kernel_bytes};
}

}  // namespace

/// Addresses of one call.
struct Layer::Buffers {
  std::byte *qkv, *attention;
  float* lse;
  std::byte *h, *up;
  std::byte* narrow;
  NormStats stats;
  std::byte *activated, *wide;
};

Layer::Layer(const Architecture& a, DType dtype, DeviceKind device, UnitDraft& unit)
    : architecture_(a),
      dtype_(dtype),
      device_(device),
      attention_norm_(a, "attn_norm", unit),
      qkv_({a.config.hidden, a.qkv_cols(), a.biases, kInitStddev}, "attn.qkv", unit),
      out_({a.config.hidden, a.config.hidden, a.biases, residual_stddev(a.config)}, "attn.out", unit),
      mlp_norm_(a, "mlp_norm", unit),
      up_({a.config.hidden, a.up_cols(), a.biases, kInitStddev},
          a.activation == ActivationKind::swiglu ? "mlp.gate_up" : "mlp.up", unit),
      down_({a.config.ffn, a.config.hidden, a.biases, residual_stddev(a.config)}, "mlp.down", unit) {}

kernels::Attention Layer::attention_shape(int64_t batch, int64_t seq) const {
  const ModelConfig& c = architecture_.config;
  const float scale = float(1.0 / std::sqrt(double(architecture_.head_dim())));
  return {batch, seq, c.heads, c.kv_heads, architecture_.head_dim(), scale, dtype_};
}

size_t Layer::kernel_scratch_bytes(int64_t batch, int64_t seq) const {
  const int64_t rows = batch * seq;
  size_t bytes = kernels::attention_scratch_bytes(device_, attention_shape(batch, seq));
  for (const Norm* norm : {&attention_norm_, &mlp_norm_})
    bytes = std::max(bytes, norm->scratch_bytes(device_, rows));
  for (const LinearMap* linear : {&qkv_, &out_, &up_, &down_})
    bytes = std::max(bytes, linear->scratch_bytes(device_, rows, dtype_));
  return bytes;
}

LayerMemory Layer::memory(int64_t batch, int64_t seq) const {
  const ModelConfig& c = architecture_.config;
  const int64_t rows = batch * seq;
  LayerMemory memory{.batch = batch, .seq = seq};

  Carver saved;
  memory.saved.qkv = saved.take(rows, architecture_.qkv_cols(), dtype_);
  memory.saved.attention = saved.take(rows, c.hidden, dtype_);
  memory.saved.lse = saved.take(rows, c.heads, DType::f32);
  memory.saved.h = saved.take(rows, c.hidden, dtype_);
  memory.saved.up = saved.take(rows, architecture_.up_cols(), dtype_);
  memory.saved.bytes = saved.bytes();

  Carver scratch;
  memory.scratch.narrow = scratch.take(rows, c.hidden, dtype_);
  memory.scratch.mean = scratch.take(rows, 1, DType::f32);
  memory.scratch.rstd = scratch.take(rows, 1, DType::f32);
  memory.scratch.activated = scratch.take(rows, c.ffn, dtype_);
  memory.scratch.wide =
      scratch.take(rows, std::max(architecture_.qkv_cols(), architecture_.up_cols()), dtype_);
  memory.scratch.kernel_bytes = kernel_scratch_bytes(batch, seq);
  memory.scratch.kernel = scratch.take(memory.scratch.kernel_bytes);
  memory.scratch.bytes = scratch.bytes();
  return memory;
}

Layer::Buffers Layer::carve(const LayerMemory& memory, StageMemory block) const {
  const auto floats = [](std::byte* at) { return reinterpret_cast<float*>(at); };
  const LayerSaved& saved = memory.saved;
  const LayerScratch& scratch = memory.scratch;
  return {.qkv = block.saved + saved.qkv,
          .attention = block.saved + saved.attention,
          .lse = floats(block.saved + saved.lse),
          .h = block.saved + saved.h,
          .up = block.saved + saved.up,
          .narrow = block.scratch + scratch.narrow,
          .stats = {floats(block.scratch + scratch.mean), floats(block.scratch + scratch.rstd)},
          .activated = block.scratch + scratch.activated,
          .wide = block.scratch + scratch.wide};
}

void Layer::rotate(const Pass& pass, int64_t seq, void* qkv, bool inverse) const {
  if (!architecture_.rotary) return;
  const ModelConfig& c = architecture_.config;
  kernels::rotary(pass.stream,
                  {.rows = pass.rows,
                   .seq = seq,
                   .rotated_heads = c.heads + c.kv_heads,
                   .row_stride = architecture_.qkv_cols(),
                   .head_dim = architecture_.head_dim(),
                   .theta = float(c.rope_theta),
                   .dtype = dtype_,
                   .inverse = inverse},
                  qkv);
}

/// From the normed input in `narrow`. With gelu the same call fills `activated` as well, in backward too,
/// where it is not needed: another product might round `up` differently.
void Layer::up_forward(const Pass& pass, const Buffers& at) const {
  if (architecture_.activation == ActivationKind::gelu)
    up_.forward_gelu(pass, at.narrow, at.up, at.activated);
  else
    up_.forward(pass, at.narrow, at.up);
}

void Layer::activate(const Pass& pass, const Buffers& at) const {
  const int64_t cols = architecture_.config.ffn;
  if (architecture_.activation == ActivationKind::swiglu)
    kernels::swiglu_forward(pass.stream, pass.rows, cols, dtype_, at.up, at.activated);
  else
    kernels::gelu_forward(pass.stream, pass.rows * cols, dtype_, at.up, at.activated);
}

/// To the gradient of the columns before the activation in `wide`.
void Layer::down_backward(const Pass& pass, const Buffers& at, const void* dy) const {
  if (architecture_.activation == ActivationKind::gelu) {
    down_.backward_gelu(pass, at.activated, at.up, dy, at.wide);
  } else {
    down_.backward(pass, at.activated, dy, at.activated);
    kernels::swiglu_backward(pass.stream, pass.rows, architecture_.config.ffn, dtype_, at.up, at.activated,
                             at.wide);
  }
}

void Layer::fill_saved(const Pass& pass, const LayerMemory& memory, const Buffers& at, const void* x) const {
  attention_norm_.forward(pass, x, at.narrow, at.stats);
  qkv_.forward(pass, at.narrow, at.qkv);
  rotate(pass, memory.seq, at.qkv, false);
  kernels::attention_forward(pass.stream, attention_shape(memory.batch, memory.seq), at.qkv, at.attention,
                             at.lse, pass.scratch);
  out_.forward(pass, at.attention, at.h);
  kernels::add(pass.stream, pass.rows * architecture_.config.hidden, dtype_, x, at.h, at.h);
  mlp_norm_.forward(pass, at.h, at.narrow, at.stats);
  up_forward(pass, at);
}

void Layer::forward(Stream& stream, const LayerMemory& memory, const WeightView& weights, const void* x,
                    void* y, StageMemory block) const {
  const Buffers at = carve(memory, block);
  const int64_t rows = memory.batch * memory.seq;
  const Pass pass{stream, rows, &weights, nullptr, kernel_scratch(memory, block)};
  fill_saved(pass, memory, at, x);
  if (architecture_.activation != ActivationKind::gelu) activate(pass, at);
  down_.forward(pass, at.activated, y);
  kernels::add(stream, rows * architecture_.config.hidden, dtype_, at.h, y, y);
}

void Layer::backward_mlp(const Pass& pass, const Buffers& at, const void* dy, void* dh) const {
  activate(pass, at);
  down_backward(pass, at, dy);
  mlp_norm_.forward(pass, at.h, at.narrow, at.stats);
  up_.backward(pass, at.narrow, at.wide, at.narrow);
  mlp_norm_.backward(pass, at.h, at.stats, at.narrow, dy, dh);
}

/// dx holds dh on entry.
void Layer::backward_attention(const Pass& pass, const LayerMemory& memory, const Buffers& at, const void* x,
                               void* dx) const {
  out_.backward(pass, at.attention, dx, at.narrow);
  kernels::attention_backward(pass.stream, attention_shape(memory.batch, memory.seq), at.qkv, at.attention,
                              at.lse, at.narrow, at.wide, pass.scratch);
  rotate(pass, memory.seq, at.wide, true);
  attention_norm_.forward(pass, x, at.narrow, at.stats);
  qkv_.backward(pass, at.narrow, at.wide, at.narrow);
  attention_norm_.backward(pass, x, at.stats, at.narrow, dx, dx);
}

void Layer::backward(Stream& stream, const LayerMemory& memory, const WeightView& weights,
                     const GradientView& gradients, const void* x, const void* dy, void* dx, bool recompute,
                     StageMemory block) const {
  const Buffers at = carve(memory, block);
  const Pass pass{stream, memory.batch * memory.seq, &weights, &gradients, kernel_scratch(memory, block)};
  if (recompute) fill_saved(pass, memory, at, x);
  backward_mlp(pass, at, dy, dx);
  backward_attention(pass, memory, at, x, dx);
}

}  // namespace headrace
