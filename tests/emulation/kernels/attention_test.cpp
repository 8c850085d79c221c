// SPDX-License-Identifier: Apache-2.0
// CUDA's attention kernels, run by the emulation: against the double-precision oracle and the host's kernels,
// at every edge of the tiles (16, 32, 64, 128 rows), with poison where nothing may be read.
#include <limits>

#include "kernels/cuda/attention_tiles.h"
#include "tests/emulation/support.h"
#include "tests/kernels/attention_reference.h"

namespace headrace::kernels {
namespace {

constexpr DType kF32 = DType::f32, kBf16 = DType::bf16;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The shape as the device sees it.
struct DeviceShape {
  explicit DeviceShape(const Attention& a)
      : begins(a.cu_seqlens ? std::vector<int32_t>(a.cu_seqlens, a.cu_seqlens + a.documents + 1)
                            : std::vector<int32_t>(1)),
        shape(a) {
    if (a.cu_seqlens) shape.cu_seqlens = begins.data();
  }
  DeviceValues<int32_t> begins;
  Attention shape;
};

/// Forward, then backward from its results. `offset`: elements by which addresses are off.
AttentionResult run_on_cuda(const Attention& a, const Tensor& qkv, const Tensor& dout, size_t offset) {
  EmulatedStream stream;
  const DeviceShape device(a);
  const DeviceBytes scratch(attention_scratch_bytes(DeviceKind::cuda, a));
  const DeviceTensor in(qkv, offset), din(dout, offset), out(a.dtype, out_elems(a), offset);
  const DeviceTensor lse(kF32, lse_elems(a)), dqkv(a.dtype, qkv_elems(a), offset);
  attention_forward(stream, device.shape, in.data(), out.data(), lse.floats(), scratch);
  attention_backward(stream, device.shape, in.data(), out.data(), lse.floats(), din.data(), dqkv.data(),
                     scratch);
  AttentionResult r(a);
  r.out = out.fetch(stream);
  r.lse = lse.fetch(stream);
  r.dqkv = dqkv.fetch(stream);
  return r;
}
AttentionResult run_aligned(const Attention& a, const Tensor& qkv, const Tensor& dout) {
  return run_on_cuda(a, qkv, dout, 0);
}

/// Relative to the largest value: fp32 sums, or bf16 operands of the products (P and dS).
double tolerance(DType dtype) {
  return dtype == kF32 ? 2e-6 : 3e-3;
}

void check(const Attention& a, double spread = 1.0) {
  SCOPED_TRACE(testing::Message() << a.batch << "x" << a.seq << " heads " << a.heads << "/" << a.kv_heads
                                  << "x" << a.head_dim << " " << dtype_name(a.dtype) << " documents "
                                  << a.documents);
  const Tensor qkv = random_tensor(a.dtype, qkv_elems(a), 1, spread);
  const Tensor dout = random_tensor(a.dtype, out_elems(a), 2);
  const AttentionResult got = run_aligned(a, qkv, dout);
  const ReferenceAttention want = reference_attention(a, qkv.doubles());
  expect_close(got.out, want.out, tolerance(a.dtype));
  // Scores are exact products of the inputs, summed in fp32 in both formats.
  expect_close(got.lse, want.lse, 2e-6);
  // The rounded `out` enters delta, the wider the values the more.
  const Doubles gradient = reference_attention_gradient(a, qkv.doubles(), dout.doubles());
  expect_close(got.dqkv, gradient, spread * tolerance(a.dtype));
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

/// Chunks of 16 bytes lie in 8 groups of banks; a matrix load reads one chunk of 8 consecutive rows.
template <int kDim>
void expect_tile_without_conflicts() {
  std::vector<int> seen(64 * kDim / 8);
  for (int chunk = 0; chunk < kDim / 8; ++chunk) {
    for (int row = 0; row < 64; row += 8) {
      unsigned groups = 0;
      for (int r = row; r < row + 8; ++r) {
        const int place = cuda::chunk_at<kDim>(r, chunk) / 8;
        ++seen[size_t(place)];
        groups |= 1u << (place % 8);
      }
      ASSERT_EQ(groups, 0xffu) << "head_dim " << kDim << " chunk " << chunk << " row " << row;
    }
  }
  for (const int times : seen) ASSERT_EQ(times, 1);
}

TEST(CudaAttention, TilesHaveNoBankConflicts) {
  expect_tile_without_conflicts<64>();
  expect_tile_without_conflicts<96>();
  expect_tile_without_conflicts<128>();
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

TEST(CudaAttention, FlashMatchesDoubleWhenMaximaGrow) {
  // Scores of standard deviation 6: some rows of a warp grow by more than 2^8 from tile to tile, others less.
  check(shape(1, 330, 1, 1, 64, kBf16), 2.5);
  check(shape(1, 200, 1, 1, 96, kBf16), 2.5);
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
    expect_packed_equals_alone(packed(shape(1, 5, 2, 1, head_dim, kBf16), five), run_aligned);
    expect_packed_equals_alone(packed(shape(2, 150, 2, 1, head_dim, kBf16), many), run_aligned);
  }
}

TEST(CudaAttention, AgreesWithTheHost) {
  for (const Attention& a : {shape(2, 70, 4, 2, 64, kBf16), shape(1, 40, 2, 1, 80, kF32)}) {
    Tensor qkv = random_tensor(a.dtype, qkv_elems(a), 3), dout = random_tensor(a.dtype, out_elems(a), 4);
    const AttentionResult got = run_aligned(a, qkv, dout);
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
    const AttentionResult got = run_aligned(a, qkv, dout);
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

/// Results with all that may be read or written surrounded by NaN. What surrounds the results stays NaN.
class AmidPoison {
 public:
  explicit AmidPoison(const Tensor& x) : size_(x.size()), memory_(surrounded(x)) {}
  [[nodiscard]] std::byte* data() const { return memory_.data() + kAround * dtype_bytes(memory_.dtype()); }
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(data()); }
  [[nodiscard]] Tensor fetch(Stream& stream) const {
    const Tensor all = memory_.fetch(stream);
    for (size_t i = 0; i < kAround; ++i) {
      EXPECT_TRUE(std::isnan(all[i])) << "written before the first";
      EXPECT_TRUE(std::isnan(all[kAround + size_ + i])) << "written after the last";
    }
    const auto first = int64_t(kAround);
    return rows_of(all, int64_t(all.size()), {first, first + int64_t(size_)});
  }

 private:
  static constexpr size_t kAround = 256 * 64;  // more than a tile's rows, and aligned
  static Tensor surrounded(const Tensor& x) {
    Tensor wide(x.dtype(), Doubles(x.size() + 2 * kAround, kNan));
    for (size_t i = 0; i < x.size(); ++i) wide.set(kAround + i, float(x[i]));
    return wide;
  }
  size_t size_;
  DeviceTensor memory_;
};

AttentionResult run_amid_poison(const Attention& a, const Tensor& qkv, const Tensor& dout) {
  EmulatedStream stream;
  const DeviceBytes scratch(attention_scratch_bytes(DeviceKind::cuda, a));
  AttentionResult r(a);
  const AmidPoison in(qkv), din(dout), out(r.out), lse(r.lse), dqkv(r.dqkv);
  attention_forward(stream, a, in.data(), out.data(), lse.floats(), scratch);
  attention_backward(stream, a, in.data(), out.data(), lse.floats(), din.data(), dqkv.data(), scratch);
  r.out = out.fetch(stream);
  r.lse = lse.fetch(stream);
  r.dqkv = dqkv.fetch(stream);
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
    expect_same_bits(run_amid_poison(a, qkv, dout), run_aligned(a, qkv, dout));
  }
}

TEST(CudaAttention, PoisonInOneDocumentStaysThere) {
  const std::vector<int32_t> begins = {0, 30, 70, 100};
  for (const Attention& plain : {shape(1, 100, 2, 1, 64, kBf16), shape(1, 100, 2, 1, 16, kF32)}) {
    SCOPED_TRACE(plain.head_dim);
    const Attention a = packed(plain, begins);
    Tensor qkv = random_tensor(a.dtype, qkv_elems(a), 9), dout = random_tensor(a.dtype, out_elems(a), 10);
    const AttentionResult clean = run_aligned(a, qkv, dout);
    for (size_t i = qkv.size() * 30 / 100; i < qkv.size() * 70 / 100; ++i) qkv.set(i, kNan);
    for (size_t i = dout.size() * 30 / 100; i < dout.size() * 70 / 100; ++i) dout.set(i, kNan);
    const AttentionResult got = run_aligned(a, qkv, dout);
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
  const AttentionResult got = run_on_cuda(a, qkv, dout, 1), want = run_aligned(a, qkv, dout);
  expect_close(got.out, want.out.doubles(), tolerance(kBf16));
  expect_close(got.lse, want.lse.doubles(), 2e-6);
  expect_close(got.dqkv, want.dqkv.doubles(), tolerance(kBf16));
}

TEST(CudaAttention, LargeScoresDoNotOverflow) {
  const Attention a{1, 100, 1, 1, 64, 1.0f, kBf16};
  Tensor qkv = random_tensor(kBf16, qkv_elems(a), 13, 30.0), dout = random_tensor(kBf16, out_elems(a), 14);
  const AttentionResult got = run_aligned(a, qkv, dout);
  // Scores near 10^4 carry an fp32 error of 10^-3 into the exponent.
  expect_close(got.out, reference_attention(a, qkv.doubles()).out, 1e-2);
  for (size_t i = 0; i < got.dqkv.size(); ++i) ASSERT_TRUE(std::isfinite(got.dqkv[i])) << i;
}

TEST(CudaAttention, NothingToDoIsDone) {
  EmulatedStream stream;
  attention_forward(stream, shape(0, 5, 2, 1, 64, kBf16), nullptr, nullptr, nullptr, {});
  attention_backward(stream, shape(2, 0, 2, 1, 64, kBf16), nullptr, nullptr, nullptr, nullptr, nullptr, {});
  stream.synchronize();
}

TEST(CudaAttentionDeathTest, RefusesWhatItCannotDo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // streams have threads
  EmulatedStream stream;
  float x[1] = {};
  Attention a = shape(1, 1, 3, 2, 8, kF32);
  EXPECT_DEATH(attention_forward(stream, a, x, x, x, {}), "multiple of kv_heads");
  a = shape(1, 1, 1, 1, 264, kF32);
  EXPECT_DEATH(attention_forward(stream, a, x, x, x, {}), "head_dim above 256");
  a = shape(1, 1, 1, 1, 8, kF32);
  EXPECT_DEATH(attention_backward(stream, a, x, x, x, x, x, {}), "scratch smaller");
  a.scale = 0;
  EXPECT_DEATH(attention_forward(stream, a, x, x, x, {}), "scale");
}

}  // namespace
}  // namespace headrace::kernels
