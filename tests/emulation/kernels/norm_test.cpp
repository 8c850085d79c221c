// SPDX-License-Identifier: Apache-2.0
// CUDA's norms, run by the emulation: against double precision, whose gradients are checked by finite
// differences, and against the host's. Sizes at the edges of each way to hold a row.
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/host/host_kernels.h"
#include "tests/emulation/kernels/cases.h"

namespace headrace::kernels {
namespace {

constexpr double kEps = 1e-5;

/// Either norm in double; RMSNorm is the one without mean and bias.
struct Reference {
  bool layer;
  size_t rows, cols;
  Doubles x, weight, bias;

  [[nodiscard]] double mean(size_t row) const {
    double sum = 0;
    for (size_t i = 0; layer && i < cols; ++i) sum += x[row * cols + i];
    return sum / double(cols);
  }
  [[nodiscard]] double rstd(size_t row) const {
    double squares = 0;
    const double m = mean(row);
    for (size_t i = 0; i < cols; ++i) squares += (x[row * cols + i] - m) * (x[row * cols + i] - m);
    return 1 / std::sqrt(squares / double(cols) + kEps);
  }
  [[nodiscard]] Doubles y() const {
    Doubles out(x.size());
    for (size_t row = 0; row < rows; ++row) {
      const double m = mean(row), r = rstd(row);
      for (size_t i = 0; i < cols; ++i)
        out[row * cols + i] = (x[row * cols + i] - m) * r * weight[i] + (layer ? bias[i] : 0.0);
    }
    return out;
  }
};

struct Gradients {
  Doubles dx, dweight, dbias;
};

Gradients reference_gradients(const Reference& n, const Doubles& dy) {
  Gradients g{Doubles(n.x.size()), Doubles(n.cols), Doubles(n.cols)};
  for (size_t row = 0; row < n.rows; ++row) {
    const double m = n.mean(row), r = n.rstd(row);
    double level = 0, along = 0;
    const auto normal = [&](size_t i) { return (n.x[row * n.cols + i] - m) * r; };
    const auto term = [&](size_t i) { return dy[row * n.cols + i] * n.weight[i]; };
    for (size_t i = 0; i < n.cols; ++i) {
      level += n.layer ? term(i) / double(n.cols) : 0.0;
      along += term(i) * normal(i) / double(n.cols);
      g.dweight[i] += dy[row * n.cols + i] * normal(i);
      g.dbias[i] += dy[row * n.cols + i];
    }
    for (size_t i = 0; i < n.cols; ++i) g.dx[row * n.cols + i] = r * (term(i) - level - normal(i) * along);
  }
  return g;
}

Doubles plus(Doubles a, const Doubles& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

Tensor moved(Tensor t, double by) {
  for (size_t i = 0; i < t.size(); ++i) t.set(i, float(t[i] + by));
  return t;
}

struct Values {
  Tensor x, weight, bias, dy, residual, dweight, dbias;
};
Values random_values(DType dtype, Sizes size, double center) {
  const size_t elems = size.rows * size.cols;
  return {.x = moved(random_tensor(dtype, elems, 1), center),
          .weight = random_tensor(dtype, size.cols, 2),
          .bias = random_tensor(dtype, size.cols, 3),
          .dy = random_tensor(dtype, elems, 4),
          .residual = random_tensor(dtype, elems, 5),
          .dweight = random_tensor(kF32, size.cols, 6),
          .dbias = random_tensor(kF32, size.cols, 7)};
}

/// Operands of both passes, and both passes.
struct Case {
  Case(bool is_layer, DType type, Sizes size, size_t shift = 0, double center = 0.0)
      : layer(is_layer),
        rows(size.rows),
        cols(size.cols),
        norm{int64_t(rows), int64_t(cols), float(kEps), type},
        values(random_values(type, size, center)),
        x(values.x, shift),
        weight(values.weight, shift),
        bias(values.bias, shift),
        dy(values.dy, shift),
        residual(values.residual, shift),
        dweight(values.dweight),
        dbias(values.dbias),
        y(type, rows * cols, shift),
        mean(kF32, rows),
        rstd(kF32, rows) {}
  [[nodiscard]] Reference reference() const {
    return {layer, rows, cols, values.x.doubles(), values.weight.doubles(), values.bias.doubles()};
  }
  [[nodiscard]] RmsNorm rms() const { return {norm.rows, norm.cols, norm.eps, norm.dtype}; }

  void forward(cudaStream_t on) {
    if (layer) {
      cuda::layer_norm_forward(on, norm, x.data(), weight.data(), bias.data(), y.data(), mean.floats(),
                               rstd.floats());
    } else {
      cuda::rms_norm_forward(on, rms(), x.data(), weight.data(), y.data(), rstd.floats());
    }
  }
  void backward(cudaStream_t on, const void* residual_dx, void* dx) {
    if (layer) {
      cuda::layer_norm_backward(on, norm, x.data(), weight.data(), mean.floats(), rstd.floats(), dy.data(),
                                residual_dx, dx, dweight.floats(), dbias.floats(), scratch);
    } else {
      cuda::rms_norm_backward(on, rms(), x.data(), weight.data(), rstd.floats(), dy.data(), residual_dx, dx,
                              dweight.floats(), scratch);
    }
  }

  bool layer;
  size_t rows, cols;
  LayerNorm norm;
  Values values;
  DeviceTensor x, weight, bias, dy, residual, dweight, dbias, y, mean, rstd;
  DeviceBytes scratch{cuda::norm_scratch_bytes(int64_t(rows), int64_t(cols))};
};

/// The residual is overwritten by dx.
void check(Case c) {
  SCOPED_TRACE(testing::Message() << (c.layer ? "layer " : "rms ") << dtype_name(c.norm.dtype) << " "
                                  << c.rows << "x" << c.cols);
  EmulatedStream stream;
  const Reference n = c.reference();
  const Gradients want = reference_gradients(n, c.values.dy.doubles());
  c.forward(stream);
  c.backward(stream, c.residual.data(), c.residual.data());
  expect_close(c.y.fetch(stream), n.y());
  const Tensor mean = c.mean.fetch(stream), rstd = c.rstd.fetch(stream);
  for (size_t row = 0; row < c.rows; ++row) {
    EXPECT_NEAR(rstd[row], n.rstd(row), 1e-5 * n.rstd(row));
    if (c.layer) {
      EXPECT_NEAR(mean[row], n.mean(row), 1e-5);
    }
  }
  expect_close(c.residual.fetch(stream), plus(want.dx, c.values.residual.doubles()));
  expect_close(c.dweight.fetch(stream), plus(want.dweight, c.values.dweight.doubles()));
  if (c.layer) expect_close(c.dbias.fetch(stream), plus(want.dbias, c.values.dbias.doubles()));
}

TEST(CudaNorm, ReferenceGradientsAreDifferences) {
  for (const bool layer : {false, true}) {
    const Case c(layer, kF32, {3, 7});
    const Reference n = c.reference();
    const Doubles dy = c.values.dy.doubles();
    const Gradients g = reference_gradients(n, dy);
    const auto loss_of = [&](Doubles Reference::*operand) {
      return [&, operand](const Doubles& v) {
        Reference moved = n;
        moved.*operand = v;
        return dot(moved.y(), dy);
      };
    };
    expect_close(Tensor(kF32, g.dx), numeric_gradient(loss_of(&Reference::x), n.x));
    expect_close(Tensor(kF32, g.dweight), numeric_gradient(loss_of(&Reference::weight), n.weight));
    if (layer) expect_close(Tensor(kF32, g.dbias), numeric_gradient(loss_of(&Reference::bias), n.bias));
  }
}

TEST(CudaNorm, RowsOfAWarpMatchDouble) {
  for (const bool layer : {false, true}) {
    for (const DType dtype : {kF32, kBf16}) {
      for (const size_t cols : {8, 128, 264, 512, 1000, 1024}) check({layer, dtype, {5, cols}});
    }
  }
}

TEST(CudaNorm, RowsOfABlockMatchDouble) {
  for (const bool layer : {false, true}) {
    for (const size_t cols : {1032, 8192}) check({layer, kF32, {3, cols}});
    for (const size_t cols : {2056, 8192, 8200, 16384}) check({layer, kBf16, {3, cols}});
  }
}

TEST(CudaNorm, LongRowsMatchDouble) {
  for (const bool layer : {false, true}) {
    check({layer, kF32, {3, 8196}});
    check({layer, kBf16, {3, 16392}});
  }
}

TEST(CudaNorm, OddRowsMatchDouble) {
  for (const bool layer : {false, true}) {
    for (const DType dtype : {kF32, kBf16}) {
      for (const Sizes size : {Sizes{1, 1}, {2, 3}, {3, 37}, {19, 33}, {5, 1031}})
        check({layer, dtype, size});
      check({layer, dtype, {5, 64}, 1});
    }
  }
}

TEST(CudaNorm, GroupsOfEverySizeMatchDouble) {
  for (const bool layer : {false, true}) {
    for (const size_t rows : {4, 9, 64, 4099}) check({layer, kBf16, {rows, 8}});
    check({layer, kF32, {9, 3}});
  }
}

TEST(CudaLayerNorm, VarianceSurvivesALargeMean) {
  EmulatedStream stream;
  for (const size_t cols : {64, 2048, 37}) {
    Case c(true, kF32, {2, cols}, 0, 1e4);
    c.forward(stream);
    // The mean has steps of 2^-10: an error of half a step, where a difference of squares would have 10 of
    // them.
    expect_close(c.y.fetch(stream), c.reference().y(), 1e-3);
  }
}

TEST(CudaNorm, WorksWithoutResidualAndAgreesWithTheHost) {
  EmulatedStream stream;
  for (const DType dtype : {kF32, kBf16}) {
    Case c(true, dtype, {21, 320});
    Values v = c.values;
    Tensor y(dtype, 21 * 320), mean(kF32, 21), rstd(kF32, 21), host_dx(dtype, 21 * 320);
    ScratchMemory scratch(host::norm_scratch_bytes(21, 320));
    host::layer_norm_forward(c.norm, v.x.data(), v.weight.data(), v.bias.data(), y.data(), mean.floats(),
                             rstd.floats());
    host::layer_norm_backward(c.norm, v.x.data(), v.weight.data(), mean.floats(), rstd.floats(), v.dy.data(),
                              nullptr, host_dx.data(), v.dweight.floats(), v.dbias.floats(), scratch);
    const DeviceTensor dx(dtype, 21 * 320);
    c.forward(stream);
    c.backward(stream, nullptr, dx.data());
    // In bf16 the two may round to different sides.
    const double tolerance = dtype == kF32 ? 2e-6 : 0x1p-8;
    expect_close(c.y.fetch(stream), y.doubles(), tolerance);
    expect_close(dx.fetch(stream), host_dx.doubles(), tolerance);
    expect_close(c.dweight.fetch(stream), v.dweight.doubles());
    expect_close(c.dbias.fetch(stream), v.dbias.doubles());
  }
}

TEST(CudaNorm, NothingIsDoneToNothing) {
  EmulatedStream stream;
  for (const bool layer : {false, true}) {
    Case c(layer, kBf16, {0, 8});
    c.forward(stream);
    c.backward(stream, nullptr, nullptr);
    EXPECT_EQ(c.dweight.fetch(stream).bytes(), c.values.dweight.bytes());
  }
}

}  // namespace
}  // namespace headrace::kernels
