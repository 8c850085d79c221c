// SPDX-License-Identifier: Apache-2.0
// Embedding and cross entropy with the vocabularies of real models, against the host's.
#include "kernels/pointwise.h"
#include "twins.h"

namespace headrace::test {
namespace {

struct EmbeddingCase {
  const char* name;
  int64_t rows, seq, cols, vocab;
  bool positions;
};
class EmbeddingOnGpu : public CaseInDType<EmbeddingCase> {};

TEST_P(EmbeddingOnGpu, HasTheHostsBits) {
  const auto& [c, dtype] = GetParam();
  const kernels::Embedding e{c.rows, c.seq, c.cols, c.vocab, dtype};
  Twins twins(size_t((c.rows + c.vocab + c.seq) * c.cols) * 16 + 64 * kMiB);
  std::vector<int32_t> ids = twins.indices(c.rows, c.vocab);
  // A frequent token, as in text: long chains of rows that are added to one.
  for (size_t i = 0; i < ids.size(); i += 3) ids[i] = int32_t(c.vocab - 1);
  const Buffer tokens = twins.values(Format::i32, ids), table = twins.noise(dtype, c.vocab * c.cols);
  const Buffer positions = twins.noise(dtype, c.seq * c.cols), y = twins.zeros(dtype, c.rows * c.cols);
  const Buffer dy = twins.noise(dtype, c.rows * c.cols), dtable = twins.noise(DType::f32, c.vocab * c.cols);
  const Buffer dpositions = twins.noise(DType::f32, c.seq * c.cols);
  twins.run([&](Side& on) {
    kernels::embedding_forward(on.stream(), e, on.at<int32_t>(tokens), on.at(table),
                               c.positions ? on.at(positions) : nullptr, on.at(y));
    kernels::embedding_backward(on.stream(), e, on.at<int32_t>(tokens), on.at(dy), on.at<float>(dtable),
                                c.positions ? on.at<float>(dpositions) : nullptr);
  });
  twins.expect_same(y, "y");
  twins.expect_same(dtable, "dtable");
  twins.expect_same(dpositions, "dpositions");
}

INSTANTIATE_TEST_SUITE_P(Cuda, EmbeddingOnGpu,
                         testing::Combine(testing::Values(EmbeddingCase{"small", 66, 11, 65, 61, true},
                                                          EmbeddingCase{"gpt2", 4096, 1024, 768, 50257, true},
                                                          EmbeddingCase{"llama", 4096, 2048, 2048, 32000,
                                                                        false}),
                                          both_dtypes()),
                         case_name<EmbeddingCase>);

struct LossCase {
  const char* name;
  int64_t rows, vocab;
  bool in_place;  ///< fp32 only
};
class CrossEntropyOnGpu : public CaseInDType<LossCase> {};

TEST_P(CrossEntropyOnGpu, LossAndGradientAgreeWithTheHost) {
  const auto& [c, dtype] = GetParam();
  const kernels::CrossEntropy loss{c.rows, c.vocab, 1.0f / float(c.rows), dtype};
  Twins twins(size_t(c.rows * c.vocab) * 8 + 64 * kMiB);
  std::vector<int32_t> ids = twins.indices(c.rows, c.vocab);
  for (size_t i = 2; i < ids.size(); i += 5) ids[i] = kernels::kIgnoreLabel;
  const Buffer logits = twins.noise(DType::f32, c.rows * c.vocab, 4.0);
  const Buffer labels = twins.values(Format::i32, ids), sum = twins.values(Format::f64, std::vector{2.5});
  const bool in_place = c.in_place && dtype == DType::f32;
  const Buffer dlogits = in_place ? logits : twins.zeros(dtype, c.rows * c.vocab);
  twins.run([&](Side& on) {
    const kernels::Scratch scratch = on.scratch(kernels::cross_entropy_scratch_bytes(on.kind(), c.rows));
    for (const bool training : {false, true}) {
      kernels::cross_entropy(on.stream(), loss, on.at<float>(logits), on.at<int32_t>(labels),
                             on.at<double>(sum), training ? on.at(dlogits) : nullptr, scratch);
    }
  });
  twins.expect_near(sum, "loss", {1e-6, 1});
  twins.expect_near(dlogits, "dlogits", {2e-5, c.vocab});
}

INSTANTIATE_TEST_SUITE_P(Cuda, CrossEntropyOnGpu,
                         testing::Combine(testing::Values(LossCase{"small", 33, 61, true},
                                                          LossCase{"gpt2", 512, 50257, true},
                                                          LossCase{"llama", 1024, 32000, false},
                                                          LossCase{"llama3", 63, 128256, false}),
                                          both_dtypes()),
                         case_name<LossCase>);

}  // namespace
}  // namespace headrace::test
