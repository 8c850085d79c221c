// SPDX-License-Identifier: Apache-2.0
// The tables of all instruction sets against the plain one, on every length around a vector.
#include "kernels/host/isa.h"

#include <array>

#include "tests/kernels/support.h"

namespace headrace::kernels::host {
namespace {

constexpr int64_t kMaxElems = 70;

class IsaTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supported(GetParam())) GTEST_SKIP() << "this CPU lacks the instruction set";
  }
  const IsaKernels& kernels() const { return isa_kernels(GetParam()); }
  const IsaKernels& plain() const { return isa_kernels(Isa::scalar); }

  /// Both tables' results, written by run(kernels, out) over the same old
  /// contents; beyond `elems` nothing may change.
  template <class F>
  void compare(DType dtype, size_t elems, F run) {
    Tensor ours = random_tensor(dtype, elems + 40, 99), theirs = ours;
    const Doubles before = ours.doubles();
    run(kernels(), ours);
    run(plain(), theirs);
    for (size_t i = 0; i < ours.size(); ++i) {
      // Another order of fp32 sums of numbers of order 1; in bf16 that may turn one rounding.
      const double relative = dtype == DType::f32 ? 2e-6 : 0x1p-7;
      ASSERT_NEAR(ours[i], theirs[i], relative * std::fabs(theirs[i]) + 1e-5) << i << " of " << elems;
      if (i < elems) continue;
      ASSERT_EQ(ours[i], before[i]) << "written beyond the end at " << i << " of " << elems;
    }
  }
};

constexpr std::array kDTypes = {DType::f32, DType::bf16};

TEST_P(IsaTest, ElementwiseAgrees) {
  for (const DType d : kDTypes) {
    const size_t t = size_t(d);
    Tensor x = random_tensor(d, 4 * kMaxElems, 1, 3.0), z = random_tensor(d, 4 * kMaxElems, 2);
    for (int64_t n = 0; n <= kMaxElems; ++n) {
      const size_t elems = size_t(n);
      compare(d, 2 * elems,
              [&](const IsaKernels& k, Tensor& y) { k.swiglu_forward[t](2, n, x.data(), y.data()); });
      compare(d, 2 * elems, [&](const IsaKernels& k, Tensor& y) {
        k.swiglu_backward[t](1, n, x.data(), z.data(), y.data());
      });
      compare(d, elems, [&](const IsaKernels& k, Tensor& y) { k.gelu_forward[t](n, x.data(), y.data()); });
      compare(d, elems,
              [&](const IsaKernels& k, Tensor& y) { k.gelu_backward[t](n, x.data(), z.data(), y.data()); });
      compare(d, elems, [&](const IsaKernels& k, Tensor& y) { k.add[t](n, x.data(), z.data(), y.data()); });
      compare(DType::f32, elems,
              [&](const IsaKernels& k, Tensor& y) { k.accumulate[t](n, x.data(), y.floats()); });
      Tensor cosine = random_tensor(DType::f32, kMaxElems, 3), sine = random_tensor(DType::f32, kMaxElems, 4);
      compare(d, 2 * elems, [&](const IsaKernels& k, Tensor& y) {
        k.rotate[t](n, cosine.floats(), sine.floats(), y.data());
      });
    }
  }
}

TEST_P(IsaTest, CastsAndSumsOfSquaresAreTheSameBits) {
  Tensor x = random_tensor(DType::f32, kMaxElems, 1);
  const float special[] = {0.0f, -0.0f,  INFINITY, -INFINITY,     NAN,
                           -NAN, 1e-40f, -1e-45f,  3.4028235e38f, 1.00390625f};
  for (size_t i = 0; i < std::size(special); ++i) x.set(3 + i, special[i]);
  Tensor finite = random_tensor(DType::f32, kMaxElems, 2);
  for (const DType d : kDTypes) {
    for (int64_t n = 0; n <= kMaxElems; ++n) {
      Tensor ours(d, kMaxElems), theirs(d, kMaxElems);
      kernels().cast[0][size_t(d)](n, x.data(), ours.data());
      plain().cast[0][size_t(d)](n, x.data(), theirs.data());
      EXPECT_EQ(ours.bytes(), theirs.bytes());
      const double our_sum = kernels().round_and_sum_squares[size_t(d)](n, finite.floats(), ours.data());
      EXPECT_EQ(our_sum, plain().round_and_sum_squares[size_t(d)](n, finite.floats(), theirs.data()));
      EXPECT_EQ(ours.bytes(), theirs.bytes());
    }
  }
  Tensor half(DType::bf16, kMaxElems);
  kernels().cast[0][1](kMaxElems, x.data(), half.data());
  for (size_t i = 0; i < kMaxElems; ++i) {
    const bf16 want = to_bf16(float(x[i]));
    EXPECT_EQ(std::memcmp(&half.bytes()[2 * i], &want, 2), 0) << x[i];
  }
}

TEST_P(IsaTest, RowKernelsAgree) {
  for (const DType d : kDTypes) {
    const size_t t = size_t(d);
    Tensor x = random_tensor(d, 3 * kMaxElems, 1), w = random_tensor(d, kMaxElems, 2),
           b = random_tensor(d, kMaxElems, 3);
    Tensor dy = random_tensor(d, 3 * kMaxElems, 4), mean = random_tensor(DType::f32, 3, 5, 0.1);
    Tensor rstd(DType::f32, {1.5, 0.7, 1.0}), logits = random_tensor(DType::f32, kMaxElems, 6, 3.0);
    for (int64_t n = 1; n <= kMaxElems; ++n) {
      const size_t elems = size_t(n);
      NormRows f{.rows = 3,
                 .cols = n,
                 .eps = 1e-5f,
                 .x = x.data(),
                 .weight = w.data(),
                 .bias = b.data(),
                 .y = nullptr,
                 .mean = nullptr,
                 .rstd = nullptr};
      for (const bool rms : {true, false}) {
        Tensor new_mean(DType::f32, 3), new_rstd(DType::f32, 3);
        f.mean = new_mean.floats();
        f.rstd = new_rstd.floats();
        compare(d, 3 * elems, [&](const IsaKernels& k, Tensor& y) {
          f.y = y.data();
          (rms ? k.rms_norm_forward : k.layer_norm_forward)[t](f);
        });
        Tensor dx(d, 3 * kMaxElems), dbias(DType::f32, kMaxElems);
        NormBackwardRows r{.rows = 3,
                           .cols = n,
                           .x = x.data(),
                           .weight = w.data(),
                           .mean = mean.floats(),
                           .rstd = rstd.floats(),
                           .dy = dy.data(),
                           .residual_dx = nullptr,
                           .dx = dx.data(),
                           .dweight = nullptr,
                           .dbias = dbias.floats()};
        compare(DType::f32, elems, [&](const IsaKernels& k, Tensor& dweight) {
          r.dweight = dweight.floats();
          (rms ? k.rms_norm_backward : k.layer_norm_backward)[t](r);
        });
        compare(d, 3 * elems, [&](const IsaKernels& k, Tensor& y) {
          Tensor dweight(DType::f32, kMaxElems);
          r.dweight = dweight.floats();
          r.dx = y.data();
          (rms ? k.rms_norm_backward : k.layer_norm_backward)[t](r);
        });
      }
      compare(d, elems, [&](const IsaKernels& k, Tensor& y) {
        const double loss = k.cross_entropy_row[t](n, 0.5f, logits.floats(), int32_t(n) / 2, y.data());
        const double plain_loss =
            plain().cross_entropy_row[t](n, 0.5f, logits.floats(), int32_t(n) / 2, nullptr);
        EXPECT_NEAR(loss, plain_loss, 1e-5);
      });
    }
  }
}

TEST_P(IsaTest, AttentionAgrees) {
  for (const DType d : kDTypes) {
    for (const int64_t seq : {1, 9, 65, 140}) {
      for (const int64_t dim : {2, 20, 32, 48}) {
        const size_t elems = size_t(seq * dim);
        Tensor q = random_tensor(d, elems, 1), k = random_tensor(d, elems, 2), v = random_tensor(d, elems, 3);
        Tensor out(d, elems), lse(DType::f32, size_t(seq)), dq(d, elems), dk(d, elems), dv(d, elems);
        Tensor dout = random_tensor(d, elems, 4);
        std::vector<float> work(size_t(attention_work_floats(seq, dim, true)) + 16);
        const size_t skip = (64 - reinterpret_cast<uintptr_t>(work.data()) % 64) % 64 / 4;
        AttentionHead h{.seq = seq,
                        .head_dim = dim,
                        .group = 1,
                        .scale = 0.3f,
                        .q = q.data(),
                        .k = k.data(),
                        .v = v.data(),
                        .qkv_stride = dim,
                        .out_stride = dim,
                        .out = out.data(),
                        .lse = lse.floats(),
                        .dout = dout.data(),
                        .dq = dq.data(),
                        .dk = dk.data(),
                        .dv = dv.data(),
                        .work = work.data() + skip};
        plain().attention_forward[size_t(d)](h);
        const Doubles want_lse = lse.doubles(), want_out = out.doubles();
        kernels().attention_forward[size_t(d)](h);
        const double tolerance = d == DType::f32 ? 1e-5 : 0x1p-7;
        expect_close(lse, want_lse, 1e-5, 1.0);
        expect_close(out, want_out, tolerance, 1.0);
        plain().attention_backward[size_t(d)](h);
        const Doubles want_dq = dq.doubles(), want_dk = dk.doubles(), want_dv = dv.doubles();
        kernels().attention_backward[size_t(d)](h);
        expect_close(dq, want_dq, tolerance, 1.0);
        expect_close(dk, want_dk, tolerance, 1.0);
        expect_close(dv, want_dv, tolerance, 1.0);
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<Isa>& info) {
  return info.param == Isa::avx2 ? "Avx2" : "Avx512";
}
INSTANTIATE_TEST_SUITE_P(Tables, IsaTest, testing::Values(Isa::avx2, Isa::avx512), name_of);

}  // namespace
}  // namespace headrace::kernels::host
