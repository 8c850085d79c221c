// SPDX-License-Identifier: Apache-2.0
// CUDA's norms, run by the emulation: against double precision, whose gradients are checked by finite
// differences, and against the host's. Sizes at the edges of each way to hold a row.
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/host/host_kernels.h"
#include "tests/emulation/kernels/placed.h"

namespace headrace::kernels {
namespace {

constexpr double kEps = 1e-5;

struct Sizes {
  size_t rows, cols;
};

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

/// Operands of both passes and what they made.
struct Case {
  Case(bool is_layer, DType type, Sizes size, size_t shift, double center = 0.0)
      : layer(is_layer),
        dtype(type),
        rows(size.rows),
        cols(size.cols),
        x(moved(random_tensor(type, rows * cols, 1), center), shift),
        weight(random_tensor(type, cols, 2), shift),
        bias(random_tensor(type, cols, 3), shift),
        dy(random_tensor(type, rows * cols, 4), shift),
        residual(random_tensor(type, rows * cols, 5), shift),
        dweight(random_tensor(kF32, cols, 6), 0),
        dbias(random_tensor(kF32, cols, 7), 0),
        y(type, rows * cols, shift),
        mean(kF32, rows, 0),
        rstd(kF32, rows, 0) {}
  static Tensor moved(Tensor t, double by) {
    for (size_t i = 0; by != 0.0 && i < t.size(); ++i) t.set(i, float(t[i] + by));
    return t;
  }
  [[nodiscard]] Reference reference() {
    return {layer, rows, cols, x.get().doubles(), weight.get().doubles(), bias.get().doubles()};
  }
  [[nodiscard]] RmsNorm rms() const { return {int64_t(rows), int64_t(cols), float(kEps), dtype}; }
  [[nodiscard]] LayerNorm layer_norm() const { return {int64_t(rows), int64_t(cols), float(kEps), dtype}; }

  void forward() {
    run([&](auto on) {
      if (layer) {
        cuda::layer_norm_forward(on, layer_norm(), x.data(), weight.data(), bias.data(), y.data(),
                                 mean.floats(), rstd.floats());
      } else {
        cuda::rms_norm_forward(on, rms(), x.data(), weight.data(), y.data(), rstd.floats());
      }
    });
  }
  void backward(const void* residual_dx, void* dx) {
    ScratchMemory scratch(cuda::norm_scratch_bytes(int64_t(rows), int64_t(cols)));
    run([&](auto on) {
      if (layer) {
        cuda::layer_norm_backward(on, layer_norm(), x.data(), weight.data(), mean.floats(), rstd.floats(),
                                  dy.data(), residual_dx, dx, dweight.floats(), dbias.floats(), scratch);
      } else {
        cuda::rms_norm_backward(on, rms(), x.data(), weight.data(), rstd.floats(), dy.data(), residual_dx, dx,
                                dweight.floats(), scratch);
      }
    });
  }

  bool layer;
  DType dtype;
  size_t rows, cols;
  Placed x, weight, bias, dy, residual, dweight, dbias, y, mean, rstd;
};

/// The residual is overwritten by dx.
void check(Case c) {
  SCOPED_TRACE(testing::Message() << (c.layer ? "layer " : "rms ") << dtype_name(c.dtype) << " " << c.rows
                                  << "x" << c.cols);
  const Reference n = c.reference();
  const Gradients g = reference_gradients(n, c.dy.get().doubles());
  const Doubles want_dx = plus(g.dx, c.residual.get().doubles());
  const Doubles want_dweight = plus(g.dweight, c.dweight.get().doubles());
  const Doubles want_dbias = plus(g.dbias, c.dbias.get().doubles());
  c.forward();
  expect_close(c.y.get(), n.y());
  for (size_t row = 0; row < c.rows; ++row) {
    EXPECT_NEAR(c.rstd.get()[row], n.rstd(row), 1e-5 * n.rstd(row));
    if (c.layer) EXPECT_NEAR(c.mean.get()[row], n.mean(row), 1e-5);
  }
  c.backward(c.residual.data(), c.residual.data());
  expect_close(c.residual.get(), want_dx);
  expect_close(c.dweight.get(), want_dweight);
  if (c.layer) expect_close(c.dbias.get(), want_dbias);
}

TEST(CudaNorm, ReferenceGradientsAreDifferences) {
  for (const bool layer : {false, true}) {
    Case c(layer, kF32, {3, 7}, 0);
    Reference n = c.reference();
    const Doubles dy = c.dy.get().doubles();
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
      for (const size_t cols : {8, 128, 264, 512, 1000, 1024}) check({layer, dtype, {5, cols}, 0});
    }
  }
}

TEST(CudaNorm, RowsOfABlockMatchDouble) {
  for (const bool layer : {false, true}) {
    for (const size_t cols : {1032, 8192}) check({layer, kF32, {3, cols}, 0});
    for (const size_t cols : {2056, 8192, 8200, 16384}) check({layer, kBf16, {3, cols}, 0});
  }
}

TEST(CudaNorm, LongRowsMatchDouble) {
  for (const bool layer : {false, true}) {
    check({layer, kF32, {3, 8196}, 0});
    check({layer, kBf16, {3, 16392}, 0});
  }
}

TEST(CudaNorm, OddRowsMatchDouble) {
  for (const bool layer : {false, true}) {
    for (const DType dtype : {kF32, kBf16}) {
      for (const Sizes size : {Sizes{1, 1}, {2, 3}, {3, 37}, {19, 33}, {5, 1031}})
        check({layer, dtype, size, 0});
      check({layer, dtype, {5, 64}, 1});
    }
  }
}

TEST(CudaNorm, GroupsOfEverySizeMatchDouble) {
  for (const bool layer : {false, true}) {
    for (const size_t rows : {4, 9, 64, 4099}) check({layer, kBf16, {rows, 8}, 0});
    check({layer, kF32, {4099, 3}, 0});
  }
}

TEST(CudaLayerNorm, VarianceSurvivesALargeMean) {
  for (const size_t cols : {64, 2048, 37}) {
    Case c(true, kF32, {2, cols}, 0, 1e4);
    const Doubles want = c.reference().y();
    c.forward();
    // The values themselves have steps of 2^-10 and the mean one of as much.
    expect_close(c.y.get(), want, 2e-3);
  }
}

TEST(CudaNorm, WorksWithoutResidualAndAgreesWithTheHost) {
  for (const DType dtype : {kF32, kBf16}) {
    Case c(true, dtype, {21, 320}, 0);
    Placed dx(dtype, 21 * 320, 0);
    Tensor dweight = c.dweight.get(), dbias = c.dbias.get(), host_dx(dtype, 21 * 320), y(dtype, 21 * 320);
    Tensor mean(kF32, 21), rstd(kF32, 21);
    ScratchMemory scratch(host::norm_scratch_bytes(21, 320));
    host::layer_norm_forward(c.layer_norm(), c.x.data(), c.weight.data(), c.bias.data(), y.data(),
                             mean.floats(), rstd.floats());
    host::layer_norm_backward(c.layer_norm(), c.x.data(), c.weight.data(), mean.floats(), rstd.floats(),
                              c.dy.data(), nullptr, host_dx.data(), dweight.floats(), dbias.floats(),
                              scratch);
    c.forward();
    c.backward(nullptr, dx.data());
    // Two roundings to the format, perhaps to different sides.
    const double tolerance = dtype == kF32 ? 2e-6 : 0x1p-8;
    expect_close(c.y.get(), y.doubles(), tolerance);
    expect_close(dx.get(), host_dx.doubles(), tolerance);
    expect_close(c.dweight.get(), dweight.doubles(), 1e-5);
    expect_close(c.dbias.get(), dbias.doubles(), 1e-5);
  }
}

TEST(CudaNorm, NothingIsDoneToNothing) {
  for (const bool layer : {false, true}) {
    Case c(layer, kBf16, {0, 8}, 0);
    const std::vector<std::byte> before = c.dweight.get().bytes();
    c.forward();
    c.backward(nullptr, nullptr);
    EXPECT_EQ(c.dweight.get().bytes(), before);
  }
}

}  // namespace
}  // namespace headrace::kernels
