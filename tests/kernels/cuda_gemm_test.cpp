// SPDX-License-Identifier: Apache-2.0
// cuBLASLt behind gemm.h: in a normal build on a real GPU, in the emulated build against its stand-in, which
// refuses what the library refuses.
#include "device/cuda_info.h"
#include "headrace/error.h"
#include "tests/device/require_gpu.h"
#include "tests/kernels/gemm_cases.h"
#include "tests/kernels/linear_gelu_cases.h"
#include "tests/kernels/on_device.h"

namespace headrace::kernels {
namespace {

class CudaGemm : public testing::Test {
 protected:
  void SetUp() override {
    HEADRACE_SKIP_UNLESS(has_usable_gpu());
    device_ = make_device({.kind = DeviceOptions::Kind::cuda, .memory_bytes = size_t(32) << 20});
    region_ = std::make_unique<DeviceRegion>(*device_);
  }
  Stream& stream() { return device_->compute(); }

  /// With operands `shift` bytes beyond aligned addresses, all of them `gap` bytes further on.
  void multiply(GemmOperands& host, size_t shift = 0, size_t gap = 0) {
    region_->reset();
    region_->take(gap);
    Gemm g = host.g;
    g.a = region_->put(host.a, shift);
    g.b = region_->put(host.b, shift);
    g.c = region_->put(host.out, shift * dtype_bytes(g.out) / dtype_bytes(g.in));
    if (g.bias) g.bias = region_->put(host.bias);
    gemm(stream(), g, region_->scratch(gemm_scratch_bytes(DeviceKind::cuda, g)));
    region_->get(g.c, host.out);
  }
  void check(const Case& c, size_t shift = 0) {
    check_gemm(c, [&](GemmOperands& operands) { multiply(operands, shift); });
  }

  /// With z `shift` bytes beyond an aligned address.
  void compute(LinearGelu& t, size_t shift = 0) {
    region_->reset();
    const Scratch scratch = region_->scratch(linear_scratch_bytes(DeviceKind::cuda, t.l));
    std::byte *const z = region_->put(t.z, shift), *const y = region_->put(t.y), *const w = region_->put(t.w);
    std::byte* const dz = region_->put(t.dz);
    linear_gelu_forward(stream(), t.l, region_->put(t.x), w, t.bias ? region_->put(t.b) : nullptr, z, y,
                        scratch);
    linear_gelu_backward_input(stream(), t.l, region_->put(t.dy), w, region_->put(t.z_given, shift), dz,
                               scratch);
    region_->get(z, t.z);
    region_->get(y, t.y);
    region_->get(dz, t.dz);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceRegion> region_;
};

TEST_F(CudaGemm, MatchesDoubleForEverySizeAndTransposition) {
  for (const auto& [m, n, k] : kGemmSizes) {
    for (int flags = 0; flags < 8; ++flags) {
      const bool ta = flags & 1, tb = flags & 2, bias = flags & 4;
      check({m, n, k, ta, tb, false, bias, DType::f32, DType::f32});
      check({m, n, k, ta, tb, true, bias, DType::f32, DType::f32});
      check({m, n, k, ta, tb, false, bias, DType::bf16, DType::bf16});
      check({m, n, k, ta, tb, false, bias, DType::bf16, DType::f32});
      check({m, n, k, ta, tb, true, bias, DType::bf16, DType::f32});
      check({m, n, k, ta, tb, false, bias, DType::f32, DType::bf16});
    }
  }
}

TEST_F(CudaGemm, TakesAddressesOfAnyElement) {
  for (int flags = 0; flags < 4; ++flags) {
    const bool ta = flags & 1, tb = flags & 2;
    check({24, 40, 16, ta, tb, false, true, DType::bf16, DType::bf16}, 2);
    check({24, 40, 16, ta, tb, true, false, DType::bf16, DType::f32}, 6);
    check({24, 40, 16, ta, tb, true, true, DType::f32, DType::f32}, 4);
  }
}

TEST_F(CudaGemm, BiasOfALaterCallIsTheOneThatCounts) {
  const Case c{8, 16, 32, false, true, false, true, DType::bf16, DType::bf16};
  check_gemm(c, [&](GemmOperands& operands) {
    Tensor kept = operands.out;
    const Tensor bias = operands.bias;
    operands.bias = Tensor(DType::bf16, Doubles(16, 100.0));
    multiply(operands);
    EXPECT_GT(operands.out[0], 50.0);
    operands.out = kept;
    operands.bias = bias;
    multiply(operands, 0, 1 << 16);
  });
}

TEST_F(CudaGemm, SameBitsEveryTime) {
  const Case c{65, 33, 700, true, false, true, false, DType::bf16, DType::f32};
  std::vector<std::byte> first;
  for (int i = 0; i < 3; ++i) {
    check_gemm(c, [&](GemmOperands& operands) {
      multiply(operands);
      if (first.empty()) first = operands.out.bytes();
      EXPECT_EQ(operands.out.bytes(), first);
    });
  }
}

TEST_F(CudaGemm, EmptyProductsLeaveBiasOrNothing) {
  Tensor bias(DType::f32, {2.0, 3.0}), out(DType::f32, {10.0, 20.0, 30.0, 40.0});
  Gemm g{.m = 2,
         .n = 2,
         .k = 0,
         .a = nullptr,
         .lda = 1,
         .b = nullptr,
         .ldb = 2,
         .in = DType::f32,
         .c = region_->put(out),
         .ldc = 2,
         .out = DType::f32,
         .accumulate = true,
         .bias = nullptr};
  const auto result = [&] {
    gemm(stream(), g, region_->scratch(gemm_scratch_bytes(DeviceKind::cuda, g)));
    region_->get(g.c, out);
    return out.doubles();
  };
  EXPECT_EQ(result(), Doubles({10, 20, 30, 40}));
  g.bias = region_->put(bias);
  EXPECT_EQ(result(), Doubles({12, 23, 32, 43}));
  g.accumulate = false;
  EXPECT_EQ(result(), Doubles({2, 3, 2, 3}));
  g.m = 0;
  g.k = 5;
  EXPECT_EQ(result(), Doubles({2, 3, 2, 3}));
}

TEST_F(CudaGemm, ScratchDependsOnTheShapeAndIsBounded) {
  Gemm g{.m = 4, .n = 4, .k = 8, .in = DType::bf16, .out = DType::bf16};
  EXPECT_LE(gemm_scratch_bytes(DeviceKind::cuda, g), 1024u);
  g.m = g.n = 100'000;
  EXPECT_LE(gemm_scratch_bytes(DeviceKind::cuda, g), 1024u);  // nothing to split
  g.k = 100'000;
  EXPECT_LE(gemm_scratch_bytes(DeviceKind::cuda, g), (size_t(32) << 20) + 4096);
  EXPECT_GE(gemm_scratch_bytes(DeviceKind::cuda, g), size_t(32) << 20);
}

TEST_F(CudaGemm, ThreeLinearProductsMatchDoubleLoops) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [rows, in, out] : kGemmSizes) {
      SCOPED_TRACE(testing::Message()
                   << rows << " rows, " << in << " to " << out << " " << dtype_name(dtype));
      const Linear l{.rows = rows, .in_features = in, .out_features = out, .dtype = dtype};
      const size_t x_elems = size_t(rows * in), w_elems = size_t(in * out), y_elems = size_t(rows * out);
      Tensor x = random_tensor(dtype, x_elems, 1), w = random_tensor(dtype, w_elems, 2);
      Tensor bias = random_tensor(dtype, size_t(out), 3), dy = random_tensor(dtype, y_elems, 4);
      Tensor y(dtype, y_elems), dx(dtype, x_elems);
      Tensor dw(DType::f32, Doubles(w_elems, 1.0)), db(DType::f32, Doubles(size_t(out), 2.0));
      Doubles want_y(y_elems), want_dx(x_elems), want_dw(w_elems, 1.0), want_db(size_t(out), 2.0);
      for (size_t r = 0; r < size_t(rows); ++r) {
        for (size_t o = 0; o < size_t(out); ++o) {
          const size_t at = r * size_t(out) + o;
          want_y[at] = bias[o];
          want_db[o] += dy[at];
          for (size_t i = 0; i < size_t(in); ++i) {
            want_y[at] += x[r * size_t(in) + i] * w[o * size_t(in) + i];
            want_dx[r * size_t(in) + i] += dy[at] * w[o * size_t(in) + i];
            want_dw[o * size_t(in) + i] += dy[at] * x[r * size_t(in) + i];
          }
        }
      }
      region_->reset();
      const Scratch scratch = region_->scratch(linear_scratch_bytes(DeviceKind::cuda, l));
      std::byte *const x_at = region_->put(x), *const w_at = region_->put(w), *const dy_at = region_->put(dy);
      std::byte *const y_at = region_->put(y), *const dx_at = region_->put(dx);
      std::byte *const dw_at = region_->put(dw), *const db_at = region_->put(db);
      linear_forward(stream(), l, x_at, w_at, region_->put(bias), y_at, scratch);
      linear_backward_input(stream(), l, dy_at, w_at, dx_at, scratch);
      linear_backward_weight(stream(), l, dy_at, x_at, reinterpret_cast<float*>(dw_at),
                             reinterpret_cast<float*>(db_at), scratch);
      region_->get(y_at, y);
      region_->get(dx_at, dx);
      region_->get(dw_at, dw);
      region_->get(db_at, db);
      expect_close(y, want_y);
      expect_close(dx, want_dx);
      expect_close(dw, want_dw);
      expect_close(db, want_db);
    }
  }
}

TEST_F(CudaGemm, GeluOfAProductAndItsGradientMatchDouble) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool bias : {false, true}) {
      for (const auto& [rows, in, out] : kGemmSizes)
        check_linear_gelu(rows, in, out, dtype, bias, [&](LinearGelu& t) { compute(t); });
      for (const size_t shift : {0, 8})  // rows of whole vectors: fused, and not
        check_linear_gelu(31, 40, 64, dtype, bias, [&](LinearGelu& t) { compute(t, shift); });
    }
  }
}

/// x W^T = 1 + 2^-9, of which bf16 keeps 1. gelu(1) = 0.8412 rounds to 215/256, gelu(1 + 2^-9) = 0.8433 to
/// 216/256.
TEST_F(CudaGemm, GeluIsAppliedToTheSumBeforeItIsRounded) {
  for (const auto& [shift, want] : {std::pair(size_t(0), 216.0), std::pair(size_t(8), 215.0)}) {
    LinearGelu t{.l = {.rows = 8, .in_features = 8, .out_features = 8, .dtype = DType::bf16},
                 .bias = false,
                 .x = Tensor(DType::bf16, 64),
                 .w = Tensor(DType::bf16, Doubles(64, 1.0)),
                 .b = Tensor(DType::bf16, 8),
                 .dy = Tensor(DType::bf16, 64),
                 .z_given = Tensor(DType::bf16, 64),
                 .z = Tensor(DType::bf16, 64),
                 .y = Tensor(DType::bf16, 64),
                 .dz = Tensor(DType::bf16, 64)};
    for (size_t row = 0; row < 8; ++row) {
      t.x.set(row * 8, 1.0f);
      t.x.set(row * 8 + 1, 0x1p-9f);
    }
    compute(t, shift);
    EXPECT_EQ(t.z.doubles(), Doubles(64, 1.0));
    EXPECT_EQ(t.y.doubles(), Doubles(64, want / 256)) << shift;
  }
}

}  // namespace
}  // namespace headrace::kernels
