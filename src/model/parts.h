// SPDX-License-Identifier: Apache-2.0
// The parts that layers and the head are made of: a norm of either kind and a linear map with or without
// bias. A part knows which segments of its unit it owns, and calls the kernels with them. It owns no memory.
#pragma once

#include <optional>
#include <vector>

#include "kernels/gemm.h"
#include "model/architecture.h"
#include "model/init.h"

namespace headrace {

/// A unit while it is put together: its declaration and how each segment starts.
struct UnitDraft {
  UnitSpec spec;
  std::vector<SegmentInit> init;
  /// Returns the segment's index.
  size_t add(Segment segment, SegmentInit segment_init);
};

/// What every part needs for one call; `gradients` is null in forward.
struct Pass {
  Stream& stream;
  int64_t rows;
  const WeightView* weights;
  const GradientView* gradients;
  kernels::Scratch scratch;
};

/// Statistics of a norm's rows, fp32 [rows]; RMSNorm leaves `mean` alone.
struct NormStats {
  float* mean;
  float* rstd;
};

class Norm {
 public:
  Norm(const Architecture& architecture, const std::string& name, UnitDraft& unit);
  void forward(const Pass& pass, const void* x, void* y, NormStats stats) const;
  /// dx = residual + (dy through the norm); residual may be null or dx itself.
  void backward(const Pass& pass, const void* x, NormStats stats, const void* dy, const void* residual,
                void* dx) const;
  [[nodiscard]] size_t scratch_bytes(DeviceKind device, int64_t rows) const;

 private:
  NormKind kind_;
  int64_t cols_;
  float eps_;
  size_t weight_;
  size_t bias_ = 0;
};

/// y[rows, out] = x[rows, in] W[out, in]^T (+ bias).
class LinearMap {
 public:
  struct Shape {
    int64_t in, out;
    bool bias;
    double init_stddev;
  };
  LinearMap(const Shape& shape, const std::string& name, UnitDraft& unit);
  void forward(const Pass& pass, const void* x, void* y) const;
  /// dW += dy^T x (and the bias's), then dx = dy W, so that dx may be the memory of x.
  void backward(const Pass& pass, const void* x, const void* dy, void* dx) const;
  /// z as y of forward, y = gelu(z).
  void forward_gelu(const Pass& pass, const void* x, void* z, void* y) const;
  /// Where x = gelu(z): dW += dy^T x (and the bias's), dz.
  void backward_gelu(const Pass& pass, const void* x, const void* z, const void* dy, void* dz) const;
  [[nodiscard]] size_t scratch_bytes(DeviceKind device, int64_t rows, DType dtype) const;

 private:
  [[nodiscard]] const void* bias(const WeightView& weights) const;
  void backward_weight(const Pass& pass, const void* x, const void* dy) const;
  [[nodiscard]] kernels::Linear kernel_shape(int64_t rows, DType dtype) const;
  Shape shape_;
  size_t weight_;
  std::optional<size_t> bias_;
};

/// Standard deviation of initial weights (Radford et al. 2019).
constexpr double kInitStddev = 0.02;

}  // namespace headrace
