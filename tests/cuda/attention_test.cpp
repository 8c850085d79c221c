// SPDX-License-Identifier: Apache-2.0
// Attention and rotary positions at the sizes of real models, against the host's.
#include "kernels/attention.h"

#include <numeric>

#include "twins.h"

namespace headrace::test {
namespace {

struct AttentionCase {
  const char* name;
  int64_t batch, seq, heads, kv_heads, head_dim;
  bool documents;
};
class AttentionOnGpu : public CaseInDType<AttentionCase> {};

/// Starts of documents of 1 to about a third of a sequence, and every start of a sequence.
std::vector<int32_t> document_starts(Twins& twins, int64_t batch, int64_t seq) {
  const std::vector<int32_t> lengths = twins.indices(batch * seq, std::max<int64_t>(1, seq * 2 / 3));
  std::vector<int32_t> starts;
  size_t next = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t row = 0; row < seq; row += 1 + lengths[next++]) starts.push_back(int32_t(b * seq + row));
  starts.push_back(int32_t(batch * seq));
  return starts;
}

TEST_P(AttentionOnGpu, ForwardAndBackwardAgreeWithTheHost) {
  const auto& [c, dtype] = GetParam();
  const int64_t rows = c.batch * c.seq, q_cols = c.heads * c.head_dim;
  const int64_t cols = q_cols + 2 * c.kv_heads * c.head_dim, hd = c.head_dim;
  Twins twins(size_t(rows * cols) * 24 + 512 * kMiB);
  const Buffer qkv = twins.noise(dtype, rows * cols), dout = twins.noise(dtype, rows * q_cols);
  const Buffer out = twins.zeros(dtype, rows * q_cols), dqkv = twins.zeros(dtype, rows * cols);
  const Buffer lse = twins.zeros(Format::f32, rows * c.heads);
  const std::vector<int32_t> starts = document_starts(twins, c.batch, c.seq);
  const Buffer documents = twins.values(Format::i32, starts);
  const auto shape = [&, dtype = dtype, c = c](Side& on) {
    kernels::Attention a{c.batch, c.seq, c.heads, c.kv_heads, hd, 1.0f / std::sqrt(float(hd)), dtype};
    if (c.documents) a.cu_seqlens = on.at<int32_t>(documents), a.documents = int64_t(starts.size()) - 1;
    return a;
  };
  // bf16: the probabilities are rounded before they meet v, and so is their gradient: 2^-9 of each term.
  const double tolerance = dtype == DType::f32 ? 1e-4 : 3e-2;
  twins.run([&](Side& on) {
    const kernels::Attention a = shape(on);
    kernels::attention_forward(on.stream(), a, on.at(qkv), on.at(out), on.at<float>(lse),
                               on.scratch(kernels::attention_scratch_bytes(on.kind(), a)));
  });
  twins.expect_near(out, "out", {tolerance, hd});
  twins.expect_near(lse, "lse", {1e-4, c.seq});
  twins.take_from_host(out);
  twins.take_from_host(lse);
  twins.run([&](Side& on) {
    const kernels::Attention a = shape(on);
    kernels::attention_backward(on.stream(), a, on.at(qkv), on.at(out), on.at<float>(lse), on.at(dout),
                                on.at(dqkv), on.scratch(kernels::attention_scratch_bytes(on.kind(), a)));
  });
  twins.expect_near(dqkv, "dqkv", {tolerance, hd});
}

INSTANTIATE_TEST_SUITE_P(
    Cuda, AttentionOnGpu,
    testing::Combine(testing::Values(AttentionCase{"small", 2, 70, 4, 2, 64, false},
                                     AttentionCase{"small_documents", 2, 133, 2, 1, 128, true},
                                     AttentionCase{"small_any_head", 1, 50, 3, 3, 24, true},
                                     AttentionCase{"hd64", 1, 2048, 8, 2, 64, false},
                                     AttentionCase{"hd96", 2, 1024, 4, 4, 96, false},
                                     AttentionCase{"hd128", 1, 4096, 4, 1, 128, false},
                                     AttentionCase{"hd128_documents", 2, 1536, 4, 2, 128, true},
                                     AttentionCase{"hd64_odd_seq", 3, 1023, 4, 2, 64, true}),
                     both_dtypes()),
    case_name<AttentionCase>);

struct RotaryCase {
  const char* name;
  int64_t rows, seq, rotated_heads, kept_heads, head_dim;
};
class RotaryOnGpu : public CaseInDType<RotaryCase> {};

TEST_P(RotaryOnGpu, AgreesWithTheHostAndTurnsBack) {
  const auto& [c, dtype] = GetParam();
  const int64_t stride = (c.rotated_heads + c.kept_heads) * c.head_dim;
  Twins twins(size_t(c.rows * stride) * 4 + 64 * kMiB);
  const Buffer qkv = twins.noise(dtype, c.rows * stride);
  for (const bool inverse : {false, true}) {
    const kernels::Rotary r{c.rows, c.seq, c.rotated_heads, stride, c.head_dim, 10000.0f, dtype, inverse};
    twins.run([&](Side& on) { kernels::rotary(on.stream(), r, on.at(qkv)); });
    twins.expect_near(qkv, inverse ? "qkv turned back" : "qkv", {2e-5, c.head_dim});
    twins.take_from_host(qkv);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, RotaryOnGpu,
                         testing::Combine(testing::Values(RotaryCase{"small", 33, 11, 3, 1, 10},
                                                          RotaryCase{"hd64", 8192, 4096, 10, 2, 64},
                                                          RotaryCase{"hd128", 4096, 4096, 40, 8, 128}),
                                          both_dtypes()),
                         case_name<RotaryCase>);

}  // namespace
}  // namespace headrace::test
