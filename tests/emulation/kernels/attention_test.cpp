// SPDX-License-Identifier: Apache-2.0
// CUDA's attention kernels, run by the emulation: against the double-precision oracle and the host's kernels,
// at every edge of the tiles (16, 32, 64, 128 rows), with poison where nothing may be read.
#include <cuda_runtime.h>

#include <limits>

#include "kernels/cuda/cuda_kernels.h"
#include "tests/kernels/attention_reference.h"

namespace headrace::kernels {
namespace {

constexpr DType kF32 = DType::f32, kBf16 = DType::bf16;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void synchronize() {
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

void forward(const Attention& a, const void* qkv, void* out, float* lse) {
  ScratchMemory scratch(cuda::attention_scratch_bytes(a));
  cuda::attention_forward(nullptr, a, qkv, out, lse, scratch);
  synchronize();
}
void backward(const Attention& a, const void* qkv, const void* out, const float* lse, const void* dout,
              void* dqkv) {
  ScratchMemory scratch(cuda::attention_scratch_bytes(a));
  cuda::attention_backward(nullptr, a, qkv, out, lse, dout, dqkv, scratch);
  synchronize();
}

AttentionResult run_on_cuda(const Attention& a, Tensor& qkv, Tensor& dout) {
  AttentionResult r(a);
  forward(a, qkv.data(), r.out.data(), r.lse.floats());
  backward(a, qkv.data(), r.out.data(), r.lse.floats(), dout.data(), r.dqkv.data());
  return r;
}

/// Relative to the largest value: fp32 sums, or bf16 operands of the products (P and dS).
double tolerance(DType dtype) {
  return dtype == kF32 ? 2e-6 : 3e-3;
}

void check(const Attention& a) {
  SCOPED_TRACE(testing::Message() << a.batch << "x" << a.seq << " heads " << a.heads << "/" << a.kv_heads
                                  << "x" << a.head_dim << " " << dtype_name(a.dtype) << " documents "
                                  << a.documents);
  Tensor qkv = random_tensor(a.dtype, qkv_elems(a), 1), dout = random_tensor(a.dtype, out_elems(a), 2);
  const AttentionResult got = run_on_cuda(a, qkv, dout);
  const ReferenceAttention want = reference_attention(a, qkv.doubles());
  expect_close(got.out, want.out, tolerance(a.dtype));
  // Scores are exact products of the inputs, summed in fp32 in both formats.
  expect_close(got.lse, want.lse, 2e-6);
  expect_close(got.dqkv, reference_attention_gradient(a, qkv.doubles(), dout.doubles()), tolerance(a.dtype));
}

float usual_scale(int64_t head_dim) {
  return float(1.0 / std::sqrt(double(head_dim)));
}
Attention shape(int64_t batch, int64_t seq, int64_t heads, int64_t kv_heads, int64_t head_dim, DType dtype) {
  return {batch, seq, heads, kv_heads, head_dim, usual_scale(head_dim), dtype};
}
Attention packed(Attention a, const std::vector<int32_t>& begins) {
  a.cu_seqlens = begins.data();
  a.documents = int64_t(begins.size()) - 1;
  return a;
}

TEST(CudaAttention, FlashMatchesDoubleAtTileEdges) {
  for (const int64_t seq : {1, 5, 63, 64, 65, 130}) check(shape(1, seq, 1, 1, 64, kBf16));
  for (const int64_t seq : {1, 63, 65, 129}) check(shape(1, seq, 1, 1, 128, kBf16));
  for (const int64_t seq : {5, 64, 130}) check(shape(1, seq, 1, 1, 96, kBf16));
}

TEST(CudaAttention, FlashMatchesDoubleOverGroupsAndBatches) {
  check(shape(2, 65, 4, 2, 64, kBf16));
  check(shape(1, 200, 3, 1, 64, kBf16));
  check(shape(1, 197, 2, 1, 128, kBf16));
  check(shape(2, 33, 3, 1, 96, kBf16));
}

TEST(CudaAttention, PlainMatchesDouble) {
  for (const int64_t seq : {1, 5, 63, 64, 65}) check(shape(1, seq, 2, 1, 8, kF32));
  check(shape(2, 130, 4, 2, 16, kF32));
  check(shape(2, 65, 3, 1, 80, kBf16));
  check(shape(1, 40, 2, 1, 64, kF32));
  check(shape(1, 40, 2, 1, 80, kF32));
  check(shape(1, 35, 1, 1, 3, kBf16));
  check(shape(1, 37, 1, 1, 256, kF32));
  check(shape(1, 9, 2, 1, 192, kBf16));
}

TEST(CudaAttention, PackedDocumentsMatchDouble) {
  const std::vector<int32_t> begins = {0, 1, 50, 50, 130, 131, 200, 260};
  check(packed(shape(2, 130, 2, 1, 64, kBf16), begins));
  check(packed(shape(2, 130, 2, 1, 16, kF32), begins));
}

TEST(CudaAttention, PackedDocumentsEqualTheDocumentsAlone) {
  const std::vector<int32_t> five = {0, 3, 5};  // [1,2,3], [4,5]
  const std::vector<int32_t> many = {0, 1, 70, 70, 150, 160, 300};
  for (const int64_t head_dim : {8, 64}) {
    expect_packed_equals_alone(packed(shape(1, 5, 2, 1, head_dim, kBf16), five), run_on_cuda);
    expect_packed_equals_alone(packed(shape(2, 150, 2, 1, head_dim, kBf16), many), run_on_cuda);
  }
}

TEST(CudaAttention, AgreesWithTheHost) {
  for (const Attention& a : {shape(2, 70, 4, 2, 64, kBf16), shape(1, 40, 2, 1, 80, kF32)}) {
    Tensor qkv = random_tensor(a.dtype, qkv_elems(a), 3), dout = random_tensor(a.dtype, out_elems(a), 4);
    const AttentionResult got = run_on_cuda(a, qkv, dout);
    AttentionResult host(a);
    InlineStream stream;
    ScratchMemory scratch(attention_scratch_bytes(DeviceKind::host, a));
    attention_forward(stream, a, qkv.data(), host.out.data(), host.lse.floats(), scratch);
    attention_backward(stream, a, qkv.data(), host.out.data(), host.lse.floats(), dout.data(),
                       host.dqkv.data(), scratch);
    expect_close(got.out, host.out.doubles(), tolerance(a.dtype));
    expect_close(got.lse, host.lse.doubles(), 2e-6);
    expect_close(got.dqkv, host.dqkv.doubles(), tolerance(a.dtype));
  }
}

TEST(CudaAttention, FirstQuerySeesItselfOnly) {
  for (const int64_t head_dim : {16, 64}) {
    const Attention a = shape(2, 70, 2, 1, head_dim, kBf16);
    Tensor qkv = random_tensor(kBf16, qkv_elems(a), 5), dout = random_tensor(kBf16, out_elems(a), 6);
    const AttentionResult got = run_on_cuda(a, qkv, dout);
    const size_t dim = size_t(head_dim);
    for (const size_t row : {0, 70}) {
      for (const size_t head : {0, 1}) {
        double product = 0;
        for (size_t c = 0; c < dim; ++c) {
          ASSERT_EQ(got.out[(row * 2 + head) * dim + c], qkv[(row * 4 + 3) * dim + c]);
          // With one key the probability is 1 whatever the query: no gradient.
          ASSERT_NEAR(got.dqkv[(row * 4 + head) * dim + c], 0.0, 1e-5);
          product += qkv[(row * 4 + head) * dim + c] * qkv[(row * 4 + 2) * dim + c];
        }
        EXPECT_NEAR(got.lse[lse_at(a, int64_t(row), int64_t(head))], product * double(a.scale), 1e-5);
      }
    }
  }
}

/// Results with all that `a` may read or write surrounded by NaN; what surrounds the results stays NaN.
AttentionResult run_amid_poison(const Attention& a, Tensor& qkv, Tensor& dout) {
  constexpr size_t kAround = 256 * 64;  // elements before and after: more than a tile's rows, and aligned
  const auto surrounded = [&](const Tensor& x) {
    Tensor wide(x.dtype(), Doubles(x.size() + 2 * kAround, kNan));
    for (size_t i = 0; i < x.size(); ++i) wide.set(kAround + i, float(x[i]));
    return wide;
  };
  const auto inside = [](Tensor& wide) {
    return static_cast<std::byte*>(wide.data()) + kAround * dtype_bytes(wide.dtype());
  };
  const auto cut = [&](const Tensor& wide, Tensor& x) {
    for (size_t i = 0; i < wide.size(); ++i) {
      const bool around = i < kAround || i >= kAround + x.size();
      if (around) {
        EXPECT_TRUE(std::isnan(wide[i])) << "written outside, at " << i;
      } else {
        x.set(i - kAround, float(wide[i]));
      }
    }
  };
  AttentionResult r(a);
  Tensor wide_qkv = surrounded(qkv), wide_dout = surrounded(dout);
  Tensor out = surrounded(r.out), lse = surrounded(r.lse), dqkv = surrounded(r.dqkv);
  auto* lse_inside = reinterpret_cast<float*>(inside(lse));
  forward(a, inside(wide_qkv), inside(out), lse_inside);
  backward(a, inside(wide_qkv), inside(out), lse_inside, inside(wide_dout), inside(dqkv));
  cut(out, r.out);
  cut(lse, r.lse);
  cut(dqkv, r.dqkv);
  return r;
}

void expect_same_bits(const AttentionResult& x, const AttentionResult& y) {
  EXPECT_TRUE(x.out.bytes() == y.out.bytes());
  EXPECT_TRUE(x.lse.bytes() == y.lse.bytes());
  EXPECT_TRUE(x.dqkv.bytes() == y.dqkv.bytes());
}

TEST(CudaAttention, PoisonBeyondTheSequenceNeverLeaks) {
  for (const Attention& a : {shape(1, 70, 2, 1, 64, kBf16), shape(1, 5, 1, 1, 128, kBf16),
                             shape(1, 65, 1, 1, 96, kBf16), shape(1, 37, 2, 1, 16, kF32)}) {
    SCOPED_TRACE(a.head_dim);
    Tensor qkv = random_tensor(a.dtype, qkv_elems(a), 7), dout = random_tensor(a.dtype, out_elems(a), 8);
    expect_same_bits(run_amid_poison(a, qkv, dout), run_on_cuda(a, qkv, dout));
  }
}

TEST(CudaAttention, PoisonInOneDocumentStaysThere) {
  const std::vector<int32_t> begins = {0, 30, 70, 100};
  for (const Attention& plain : {shape(1, 100, 2, 1, 64, kBf16), shape(1, 100, 2, 1, 16, kF32)}) {
    SCOPED_TRACE(plain.head_dim);
    const Attention a = packed(plain, begins);
    Tensor qkv = random_tensor(a.dtype, qkv_elems(a), 9), dout = random_tensor(a.dtype, out_elems(a), 10);
    const AttentionResult clean = run_on_cuda(a, qkv, dout);
    for (size_t i = qkv.size() * 30 / 100; i < qkv.size() * 70 / 100; ++i) qkv.set(i, kNan);
    for (size_t i = dout.size() * 30 / 100; i < dout.size() * 70 / 100; ++i) dout.set(i, kNan);
    const AttentionResult got = run_on_cuda(a, qkv, dout);
    for (const Span& d : {Span{0, 30}, Span{70, 100}}) {
      EXPECT_TRUE(rows_of(got.out, 100, d).bytes() == rows_of(clean.out, 100, d).bytes());
      EXPECT_TRUE(rows_of(got.dqkv, 100, d).bytes() == rows_of(clean.dqkv, 100, d).bytes());
      for (int64_t row = d.begin; row < d.end; ++row) {
        for (const int64_t head : {0, 1})
          EXPECT_EQ(got.lse[lse_at(a, row, head)], clean.lse[lse_at(a, row, head)]);
      }
    }
  }
}

TEST(CudaAttention, UnalignedTensorsTakeThePlainPath) {
  const Attention a = shape(1, 40, 2, 1, 64, kBf16);
  Tensor qkv = random_tensor(kBf16, qkv_elems(a), 11), dout = random_tensor(kBf16, out_elems(a), 12);
  const auto moved = [](const Tensor& x) {  // by one element
    Tensor y(kBf16, x.size() + 1);
    for (size_t i = 0; i < x.size(); ++i) y.set(i + 1, float(x[i]));
    return y;
  };
  Tensor moved_qkv = moved(qkv), moved_dout = moved(dout), out = moved(dout), dqkv = moved(qkv);
  Tensor lse(kF32, lse_elems(a));
  const auto at = [](Tensor& x) { return static_cast<std::byte*>(x.data()) + 2; };
  forward(a, at(moved_qkv), at(out), lse.floats());
  backward(a, at(moved_qkv), at(out), lse.floats(), at(moved_dout), at(dqkv));
  const AttentionResult want = run_on_cuda(a, qkv, dout);
  const Tensor got_out = rows_of(out, int64_t(out.size()), {1, int64_t(out.size())});
  const Tensor got_dqkv = rows_of(dqkv, int64_t(dqkv.size()), {1, int64_t(dqkv.size())});
  expect_close(got_out, want.out.doubles(), tolerance(kBf16));
  expect_close(got_dqkv, want.dqkv.doubles(), tolerance(kBf16));
}

TEST(CudaAttention, LargeScoresDoNotOverflow) {
  const Attention a{1, 100, 1, 1, 64, 1.0f, kBf16};
  Tensor qkv = random_tensor(kBf16, qkv_elems(a), 13, 30.0), dout = random_tensor(kBf16, out_elems(a), 14);
  const AttentionResult got = run_on_cuda(a, qkv, dout);
  // Scores near 10^4 carry an fp32 error of 10^-3 into the exponent.
  expect_close(got.out, reference_attention(a, qkv.doubles()).out, 1e-2);
  for (size_t i = 0; i < got.dqkv.size(); ++i) ASSERT_TRUE(std::isfinite(got.dqkv[i])) << i;
}

TEST(CudaAttention, NothingToDoIsDone) {
  cuda::attention_forward(nullptr, shape(0, 5, 2, 1, 64, kBf16), nullptr, nullptr, nullptr, {});
  cuda::attention_backward(nullptr, shape(2, 0, 2, 1, 64, kBf16), nullptr, nullptr, nullptr, nullptr, nullptr,
                           {});
}

TEST(CudaAttentionDeathTest, RefusesWhatItCannotDo) {
  float x[1] = {};
  Attention a = shape(1, 1, 3, 2, 8, kF32);
  EXPECT_DEATH(cuda::attention_forward(nullptr, a, x, x, x, {}), "multiple of kv_heads");
  a = shape(1, 1, 1, 1, 264, kF32);
  EXPECT_DEATH(cuda::attention_forward(nullptr, a, x, x, x, {}), "head_dim above 256");
  a = shape(1, 1, 1, 1, 8, kF32);
  EXPECT_DEATH(cuda::attention_backward(nullptr, a, x, x, x, x, x, {}), "scratch smaller");
  a.scale = 0;
  EXPECT_DEATH(cuda::attention_forward(nullptr, a, x, x, x, {}), "scale");
}

}  // namespace
}  // namespace headrace::kernels
