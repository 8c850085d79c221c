// SPDX-License-Identifier: Apache-2.0
#include "model/parts.h"

#include "kernels/norm.h"

namespace headrace {

size_t UnitDraft::add(Segment segment, SegmentInit segment_init) {
  spec.segments.push_back(std::move(segment));
  init.push_back(segment_init);
  return spec.segments.size() - 1;
}

Norm::Norm(const Architecture& architecture, const std::string& name, UnitDraft& unit)
    : kind_(architecture.norm),
      cols_(architecture.config.hidden),
      eps_(float(architecture.config.norm_eps)),
      weight_(unit.add({name + ".weight", {cols_}, false}, {SegmentInit::Kind::constant, 1})) {
  if (kind_ == NormKind::layer)
    bias_ = unit.add({name + ".bias", {cols_}, false}, {SegmentInit::Kind::constant, 0});
}

void Norm::forward(const Pass& pass, const void* x, void* y, NormStats stats) const {
  const WeightView& w = *pass.weights;
  if (kind_ == NormKind::rms) {
    kernels::rms_norm_forward(pass.stream, {pass.rows, cols_, eps_, w.dtype}, x, w.segment(weight_), y,
                              stats.rstd);
  } else {
    kernels::layer_norm_forward(pass.stream, {pass.rows, cols_, eps_, w.dtype}, x, w.segment(weight_),
                                w.segment(bias_), y, stats.mean, stats.rstd);
  }
}

void Norm::backward(const Pass& pass, const void* x, NormStats stats, const void* dy, const void* residual,
                    void* dx) const {
  const WeightView& w = *pass.weights;
  const GradientView& g = *pass.gradients;
  if (kind_ == NormKind::rms) {
    kernels::rms_norm_backward(pass.stream, {pass.rows, cols_, eps_, w.dtype}, x, w.segment(weight_),
                               stats.rstd, dy, residual, dx, g.segment(weight_), pass.scratch);
  } else {
    kernels::layer_norm_backward(pass.stream, {pass.rows, cols_, eps_, w.dtype}, x, w.segment(weight_),
                                 stats.mean, stats.rstd, dy, residual, dx, g.segment(weight_),
                                 g.segment(bias_), pass.scratch);
  }
}

size_t Norm::scratch_bytes(DeviceKind device, int64_t rows) const {
  return kernels::norm_scratch_bytes(device, rows, cols_);
}

LinearMap::LinearMap(const Shape& shape, const std::string& name, UnitDraft& unit)
    : shape_(shape),
      weight_(unit.add({name + ".weight", {shape.out, shape.in}, true},
                       {SegmentInit::Kind::normal, shape.init_stddev})) {
  if (shape.bias) bias_ = unit.add({name + ".bias", {shape.out}, false}, {SegmentInit::Kind::constant, 0});
}

kernels::Linear LinearMap::kernel_shape(int64_t rows, DType dtype) const {
  return {rows, shape_.in, shape_.out, dtype};
}

const void* LinearMap::bias(const WeightView& weights) const {
  return bias_ ? weights.segment(*bias_) : nullptr;
}

void LinearMap::forward(const Pass& pass, const void* x, void* y) const {
  const WeightView& w = *pass.weights;
  kernels::linear_forward(pass.stream, kernel_shape(pass.rows, w.dtype), x, w.segment(weight_), bias(w), y,
                          pass.scratch);
}

void LinearMap::forward_gelu(const Pass& pass, const void* x, void* z, void* y) const {
  const WeightView& w = *pass.weights;
  kernels::linear_gelu_forward(pass.stream, kernel_shape(pass.rows, w.dtype), x, w.segment(weight_), bias(w),
                               z, y, pass.scratch);
}

void LinearMap::backward_weight(const Pass& pass, const void* x, const void* dy) const {
  const GradientView& g = *pass.gradients;
  kernels::linear_backward_weight(pass.stream, kernel_shape(pass.rows, pass.weights->dtype), dy, x,
                                  g.segment(weight_), bias_ ? g.segment(*bias_) : nullptr, pass.scratch);
}

void LinearMap::backward(const Pass& pass, const void* x, const void* dy, void* dx) const {
  backward_weight(pass, x, dy);
  const WeightView& w = *pass.weights;
  kernels::linear_backward_input(pass.stream, kernel_shape(pass.rows, w.dtype), dy, w.segment(weight_), dx,
                                 pass.scratch);
}

void LinearMap::backward_gelu(const Pass& pass, const void* x, const void* z, const void* dy,
                              void* dz) const {
  backward_weight(pass, x, dy);
  const WeightView& w = *pass.weights;
  kernels::linear_gelu_backward_input(pass.stream, kernel_shape(pass.rows, w.dtype), dy, w.segment(weight_),
                                      z, dz, pass.scratch);
}

size_t LinearMap::scratch_bytes(DeviceKind device, int64_t rows, DType dtype) const {
  return kernels::linear_scratch_bytes(device, kernel_shape(rows, dtype));
}

}  // namespace headrace
