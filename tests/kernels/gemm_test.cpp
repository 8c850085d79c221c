// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <array>
#include <tuple>

#include "headrace/error.h"
#include "kernels/host/host_kernels.h"
#include "tests/kernels/gemm_cases.h"
#include "tests/kernels/linear_gelu_cases.h"
#include "tests/kernels/support.h"

namespace headrace::kernels {
namespace {

void check_gemm(const Case& c, host::Bf16Products how) {
  check_gemm(c, [how](GemmOperands& operands) {
    ScratchMemory scratch(host::gemm_scratch_bytes(operands.g, how));
    host::gemm(operands.g, scratch, how);
  });
}
void check_gemm(const Case& c) {
  check_gemm(c, host::Bf16Products::automatic);
}

TEST(Gemm, MatchesDoubleForEverySizeAndTransposition) {
  for (const auto& [m, n, k] : kGemmSizes) {
    for (int flags = 0; flags < 8; ++flags) {
      const bool ta = flags & 1, tb = flags & 2, bias = flags & 4;
      check_gemm({m, n, k, ta, tb, false, bias, DType::f32, DType::f32});
      check_gemm({m, n, k, ta, tb, true, bias, DType::f32, DType::f32});
      check_gemm({m, n, k, ta, tb, false, bias, DType::bf16, DType::bf16});
      check_gemm({m, n, k, ta, tb, false, bias, DType::bf16, DType::f32});
      check_gemm({m, n, k, ta, tb, true, bias, DType::bf16, DType::f32});
      check_gemm({m, n, k, ta, tb, false, bias, DType::f32, DType::bf16});
    }
  }
}

TEST(Gemm, ConvertedBlocksJoinAtTheirEdges) {
  for (int flags = 0; flags < 4; ++flags) {
    const bool ta = flags & 1, tb = flags & 2;
    check_gemm({515, 9, 40, ta, tb, false, true, DType::bf16, DType::bf16}, host::Bf16Products::converted);
    check_gemm({6, 1030, 40, ta, tb, true, false, DType::bf16, DType::f32}, host::Bf16Products::converted);
    check_gemm({6, 40, 2051, ta, tb, false, true, DType::bf16, DType::bf16}, host::Bf16Products::converted);
  }
}

TEST(Gemm, RowsAPageApartAndLongColumnsAreCopiedRight) {
  // 1024 and 2048 floats from row to row: the blocks that are copied closer together.
  for (int flags = 0; flags < 4; ++flags) {
    const bool ta = flags & 1, tb = flags & 2;
    check_gemm({20, 1024 - kSlack, 30, ta, tb, true, true, DType::f32, DType::f32});
    check_gemm({20, 30, 2048 - kSlack, ta, tb, false, true, DType::f32, DType::f32});
    check_gemm({6, 40, 2051, ta, tb, true, true, DType::f32, DType::f32});
    check_gemm({600, 40, 1024 - kSlack, ta, tb, true, false, DType::f32, DType::f32});
  }
}

TEST(Gemm, NativeBf16MatchesDouble) {
  const Gemm probe{.m = 8,
                   .n = 8,
                   .k = 8,
                   .a = nullptr,
                   .lda = 8,
                   .b = nullptr,
                   .ldb = 8,
                   .in = DType::bf16,
                   .c = nullptr,
                   .ldc = 8,
                   .out = DType::bf16};
  try {
    host::gemm_scratch_bytes(probe, host::Bf16Products::native);
  } catch (const DeviceError&) {
    GTEST_SKIP() << "no bf16 products on this CPU";
  }
  for (const auto& [m, n, k] : kGemmSizes) {
    for (int flags = 0; flags < 8; ++flags) {
      const bool ta = flags & 1, tb = flags & 2, bias = flags & 4;
      check_gemm({m, n, k, ta, tb, false, bias, DType::bf16, DType::bf16}, host::Bf16Products::native);
      check_gemm({m, n, k, ta, tb, true, bias, DType::bf16, DType::f32}, host::Bf16Products::native);
    }
  }
}

TEST(Dispatch, ADeviceWithoutKernelsIsNamed) {
#ifdef HEADRACE_HAVE_CUDA
  GTEST_SKIP() << "this build has kernels for GPUs";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(linear_scratch_bytes(DeviceKind::cuda, {1, 1, 1, DType::f32}), "host device only");
}

TEST(Gemm, EmptyProductsLeaveBiasOrNothing) {
  InlineStream stream;
  Tensor bias(DType::f32, {2.0, 3.0}), out(DType::f32, {10.0, 20.0, 30.0, 40.0});
  Gemm g{.m = 2,
         .n = 2,
         .k = 0,
         .a = nullptr,
         .lda = 1,
         .b = nullptr,
         .ldb = 2,
         .in = DType::f32,
         .c = out.data(),
         .ldc = 2,
         .out = DType::f32,
         .accumulate = true,
         .bias = nullptr};
  ScratchMemory scratch(gemm_scratch_bytes(DeviceKind::host, g));
  gemm(stream, g, scratch);
  EXPECT_EQ(out.doubles(), Doubles({10, 20, 30, 40}));
  g.bias = bias.data();
  gemm(stream, g, scratch);
  EXPECT_EQ(out.doubles(), Doubles({12, 23, 32, 43}));
  g.accumulate = false;
  gemm(stream, g, scratch);
  EXPECT_EQ(out.doubles(), Doubles({2, 3, 2, 3}));
  g.m = 0;
  g.k = 5;
  gemm(stream, g, scratch);
  EXPECT_EQ(out.doubles(), Doubles({2, 3, 2, 3}));
}

TEST(Gemm, BitsDoNotDependOnAddresses) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const size_t width = dtype_bytes(dtype);
    Tensor a = random_tensor(dtype, 37 * 70, 1), b = random_tensor(dtype, 70 * 53, 2);
    std::vector<std::byte> first;
    for (size_t shift : {size_t(0), width, 3 * width, 16 * width + width}) {
      std::vector<std::byte> a_moved(a.bytes().size() + shift), b_moved(b.bytes().size() + shift);
      std::vector<std::byte> out(37 * 53 * width + shift);
      std::memcpy(a_moved.data() + shift, a.data(), a.bytes().size());
      std::memcpy(b_moved.data() + shift, b.data(), b.bytes().size());
      const Gemm g{.m = 37,
                   .n = 53,
                   .k = 70,
                   .a = a_moved.data() + shift,
                   .lda = 70,
                   .b = b_moved.data() + shift,
                   .ldb = 53,
                   .in = dtype,
                   .c = out.data() + shift,
                   .ldc = 53,
                   .out = dtype};
      std::vector<std::byte> memory(gemm_scratch_bytes(DeviceKind::host, g) + shift);
      InlineStream stream;
      gemm(stream, g, {memory.data() + shift, memory.size() - shift});
      out.erase(out.begin(), out.begin() + ptrdiff_t(shift));
      if (first.empty()) first = out;
      EXPECT_EQ(out, first) << dtype_name(dtype) << " shifted by " << shift;
    }
  }
}

TEST(Linear, ThreeProductsMatchFiniteDifferences) {
  InlineStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Linear l{.rows = 7, .in_features = 5, .out_features = 9, .dtype = dtype};
    Tensor x = random_tensor(dtype, 35, 1), w = random_tensor(dtype, 45, 2),
           bias = random_tensor(dtype, 9, 3);
    Tensor dy = random_tensor(dtype, 63, 4), y(dtype, 63), dx(dtype, 35);
    Tensor dw(DType::f32, Doubles(45, 1.0)), dbias(DType::f32, Doubles(9, 2.0));
    const auto forward = [&](const Doubles& x_, const Doubles& w_, const Doubles& bias_) {
      Doubles out(63);
      for (size_t r = 0; r < 7; ++r) {
        for (size_t o = 0; o < 9; ++o) {
          out[r * 9 + o] = bias_[o];
          for (size_t i = 0; i < 5; ++i) out[r * 9 + o] += x_[r * 5 + i] * w_[o * 5 + i];
        }
      }
      return out;
    };
    const Doubles xd = x.doubles(), wd = w.doubles(), bd = bias.doubles(), dyd = dy.doubles();
    ScratchMemory scratch(linear_scratch_bytes(DeviceKind::host, l));
    linear_forward(stream, l, x.data(), w.data(), bias.data(), y.data(), scratch);
    linear_backward_input(stream, l, dy.data(), w.data(), dx.data(), scratch);
    linear_backward_weight(stream, l, dy.data(), x.data(), dw.floats(), dbias.floats(), scratch);
    expect_close(y, forward(xd, wd, bd));
    expect_close(dx, numeric_gradient([&](const Doubles& v) { return dot(forward(v, wd, bd), dyd); }, xd));
    Doubles want_dw = numeric_gradient([&](const Doubles& v) { return dot(forward(xd, v, bd), dyd); }, wd);
    for (double& v : want_dw) v += 1.0;
    expect_close(dw, want_dw);
    Doubles want_db = numeric_gradient([&](const Doubles& v) { return dot(forward(xd, wd, v), dyd); }, bd);
    for (double& v : want_db) v += 2.0;
    expect_close(dbias, want_db);
  }
}

TEST(Linear, GeluOfAProductAndItsGradientMatchDouble) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [rows, in, out] : kGemmSizes) {
      for (const bool bias : {false, true}) {
        check_linear_gelu(rows, in, out, dtype, bias, [](LinearGelu& t) {
          InlineStream stream;
          ScratchMemory scratch(linear_scratch_bytes(DeviceKind::host, t.l));
          linear_gelu_forward(stream, t.l, t.x.data(), t.w.data(), t.bias ? t.b.data() : nullptr, t.z.data(),
                              t.y.data(), scratch);
          linear_gelu_backward_input(stream, t.l, t.dy.data(), t.w.data(), t.z_given.data(), t.dz.data(),
                                     scratch);
        });
      }
    }
  }
}

TEST(Linear, NoRowsAreNoWork) {
  InlineStream stream;
  const Linear l{.rows = 0, .in_features = 3, .out_features = 2, .dtype = DType::bf16};
  ScratchMemory scratch(linear_scratch_bytes(DeviceKind::host, l));
  Tensor w = random_tensor(DType::bf16, 6, 1), dw(DType::f32, Doubles(6, 1.5)),
         db(DType::f32, Doubles(2, 2.5));
  linear_forward(stream, l, nullptr, w.data(), nullptr, nullptr, scratch);
  linear_backward_input(stream, l, nullptr, w.data(), nullptr, scratch);
  linear_backward_weight(stream, l, nullptr, nullptr, dw.floats(), db.floats(), scratch);
  EXPECT_EQ(dw.doubles(), Doubles(6, 1.5));
  EXPECT_EQ(db.doubles(), Doubles(2, 2.5));
}

}  // namespace
}  // namespace headrace::kernels
