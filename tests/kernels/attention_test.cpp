// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include "tests/kernels/attention_reference.h"
#include "tests/kernels/support.h"

namespace headrace::kernels {
namespace {

/// `out` and `lse` for the backward pass come from the reference, so that forward errors do not add up.
void check_attention(const Attention& a, bool backward) {
  SCOPED_TRACE(testing::Message() << a.batch << "x" << a.seq << " heads " << a.heads << "/" << a.kv_heads
                                  << "x" << a.head_dim << " " << dtype_name(a.dtype));
  InlineStream stream;
  Tensor qkv = random_tensor(a.dtype, qkv_elems(a), 1), out(a.dtype, out_elems(a));
  Tensor lse(DType::f32, size_t(a.batch * a.heads * a.seq));
  ScratchMemory scratch(attention_scratch_bytes(DeviceKind::host, a));
  const Doubles inputs = qkv.doubles();
  const ReferenceAttention want = reference_attention(a, inputs);
  attention_forward(stream, a, qkv.data(), out.data(), lse.floats(), scratch);
  expect_close(out, want.out);
  expect_close(lse, want.lse);
  if (!backward) return;
  Tensor dout = random_tensor(a.dtype, out_elems(a), 2), dqkv(a.dtype, qkv_elems(a));
  const Doubles dout_values = dout.doubles();
  const Doubles want_grad = numeric_gradient(
      [&](const Doubles& v) { return dot(reference_attention(a, v).out, dout_values); }, inputs);
  attention_backward(stream, a, qkv.data(), out.data(), lse.floats(), dout.data(), dqkv.data(), scratch);
  // In bf16 the rounded `out` enters delta: its error is a bf16 step of the products that delta sums.
  expect_close(dqkv, want_grad, a.dtype == DType::f32 ? 1e-5 : 3e-3);
}

TEST(Attention, ForwardMatchesDouble) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t seq : {1, 2, 15, 63, 64, 65, 130, 200}) {
      check_attention({1, seq, 2, 2, 16, 0.25f, dtype}, false);
    }
    for (const int64_t head_dim : {2, 6, 14, 18, 32, 48, 64, 80, 128}) {
      check_attention({2, 70, 4, 2, head_dim, 0.3f, dtype}, false);
    }
    check_attention({2, 9, 6, 1, 8, 0.5f, dtype}, false);
  }
}

TEST(Attention, BackwardMatchesFiniteDifferences) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_attention({1, 1, 1, 1, 4, 0.5f, dtype}, true);
    check_attention({2, 7, 4, 2, 6, 0.4f, dtype}, true);
    check_attention({1, 17, 3, 1, 16, 0.25f, dtype}, true);
    check_attention({1, 67, 1, 1, 4, 0.5f, dtype}, true);  // two tiles of queries and keys
  }
}

TEST(Attention, OneQueryIsSoftmaxByHand) {
  // The second query sees both keys: scores q.k = 0 and ln 3, so its weights are 1/4 and 3/4.
  InlineStream stream;
  const Attention a{1, 2, 1, 1, 2, 1.0f, DType::f32};
  const double ln3 = std::log(3.0);
  Tensor qkv(DType::f32, {0, 0, 0, 5, 10, 20,  //
                          1, 0, ln3, 7, 30, 60});
  Tensor out(DType::f32, 4), lse(DType::f32, 2);
  ScratchMemory scratch(attention_scratch_bytes(DeviceKind::host, a));
  attention_forward(stream, a, qkv.data(), out.data(), lse.floats(), scratch);
  expect_close(out, {10, 20, 25, 50}, 1e-6);
  expect_close(lse, {0, std::log(4.0)}, 1e-6);
}

AttentionResult run_on_host(const Attention& a, Tensor& qkv, Tensor& dout) {
  InlineStream stream;
  AttentionResult r(a);
  ScratchMemory scratch(attention_scratch_bytes(DeviceKind::host, a));
  attention_forward(stream, a, qkv.data(), r.out.data(), r.lse.floats(), scratch);
  attention_backward(stream, a, qkv.data(), r.out.data(), r.lse.floats(), dout.data(), r.dqkv.data(),
                     scratch);
  return r;
}

TEST(Attention, PackedDocumentsEqualTheDocumentsAlone) {
  const std::vector<int32_t> five = {0, 3, 5};                // [1,2,3], [4,5]
  const std::vector<int32_t> many = {0, 1, 70, 70, 99, 198};  // one row, one empty, two sequences of 99
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_packed_equals_alone({1, 5, 2, 1, 8, 0.5f, dtype, five.data(), 2}, run_on_host);
    expect_packed_equals_alone({2, 99, 4, 2, 18, 0.3f, dtype, many.data(), 5}, run_on_host);
  }
}

TEST(Attention, PackedDocumentsMatchDouble) {
  const std::vector<int32_t> begins = {0, 4, 7, 11, 14};
  const Attention a{2, 7, 4, 2, 6, 0.4f, DType::f32, begins.data(), 4};
  Tensor qkv = random_tensor(a.dtype, qkv_elems(a), 1), dout = random_tensor(a.dtype, out_elems(a), 2);
  const AttentionResult got = run_on_host(a, qkv, dout);
  const Doubles inputs = qkv.doubles(), dout_values = dout.doubles();
  const ReferenceAttention want = reference_attention(a, inputs);
  expect_close(got.out, want.out);
  expect_close(got.lse, want.lse);
  const auto loss = [&](const Doubles& v) { return dot(reference_attention(a, v).out, dout_values); };
  const Doubles numeric = numeric_gradient(loss, inputs);
  expect_close(got.dqkv, numeric);
  // The analytic gradient, which tests of larger shapes rely on, against the same differences.
  const Doubles analytic = reference_attention_gradient(a, inputs, dout_values);
  for (size_t i = 0; i < numeric.size(); ++i) ASSERT_NEAR(analytic[i], numeric[i], 1e-8) << i;
}

TEST(AttentionDeathTest, RefusesDocumentsThatCrossSequences) {
  const std::vector<int32_t> crossing = {0, 4, 6}, short_of_the_end = {0, 3, 5};
  Tensor qkv(DType::f32, 6 * 3 * 2), dout(DType::f32, 6 * 2);
  Attention a{2, 3, 1, 1, 2, 1.0f, DType::f32, crossing.data(), 2};
  EXPECT_DEATH(run_on_host(a, qkv, dout), "cross");
  a.cu_seqlens = short_of_the_end.data();
  EXPECT_DEATH(run_on_host(a, qkv, dout), "from 0 to batch");
}

TEST(Attention, LargeScoresDoNotOverflow) {
  InlineStream stream;
  const Attention a{1, 100, 1, 1, 16, 1.0f, DType::f32};
  Tensor qkv = random_tensor(DType::f32, qkv_elems(a), 1, 30.0), out(DType::f32, out_elems(a)),
         lse(DType::f32, 100);
  ScratchMemory scratch(attention_scratch_bytes(DeviceKind::host, a));
  attention_forward(stream, a, qkv.data(), out.data(), lse.floats(), scratch);
  // Scores near 10^4 carry an fp32 error of 10^-3 into the exponent.
  expect_close(out, reference_attention(a, qkv.doubles()).out, 1e-2);
}

TEST(Rotary, MatchesItsFormula) {
  InlineStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t head_dim : {2, 6, 32, 66}) {
      const int64_t heads = 3, stride = heads * head_dim + 4;
      const Rotary r{.rows = 10,
                     .seq = 5,
                     .rotated_heads = 2,
                     .row_stride = stride,
                     .head_dim = head_dim,
                     .theta = 10000.0f,
                     .dtype = dtype};
      Tensor x = random_tensor(dtype, size_t(10 * stride), 1);
      Doubles want = x.doubles();
      for (int64_t row = 0; row < 10; ++row) {
        for (int64_t head = 0; head < 2; ++head) {
          for (int64_t i = 0; i < head_dim / 2; ++i) {
            const double angle = double(row % 5) * std::pow(10000.0, -2.0 * double(i) / double(head_dim));
            double& lower = want[size_t(row * stride + head * head_dim + i)];
            double& upper = want[size_t(row * stride + head * head_dim + i + head_dim / 2)];
            const double a = lower, b = upper;
            lower = a * std::cos(angle) - b * std::sin(angle);
            upper = b * std::cos(angle) + a * std::sin(angle);
          }
        }
      }
      rotary(stream, r, x.data());
      expect_close(x, want, 1e-6);
    }
  }
}

TEST(Rotary, InverseUndoes) {
  InlineStream stream;
  Rotary r{.rows = 300,
           .seq = 300,
           .rotated_heads = 2,
           .row_stride = 64,
           .head_dim = 32,
           .theta = 10000.0f,
           .dtype = DType::f32};
  Tensor x = random_tensor(DType::f32, 300 * 64, 1);
  const Doubles before = x.doubles();
  rotary(stream, r, x.data());
  r.inverse = true;
  rotary(stream, r, x.data());
  expect_close(x, before, 1e-6);
}

}  // namespace
}  // namespace headrace::kernels
