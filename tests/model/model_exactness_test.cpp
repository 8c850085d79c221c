// SPDX-License-Identifier: Apache-2.0
// What must not change a result (recomputation, the memory that dx takes, asking for gradients), how
// micro-batches add up, labels that do not count, and bf16 beside fp32.
#include <gtest/gtest.h>

#include <algorithm>

#include "model_cases.h"
#include "model_harness.h"

namespace headrace::test {
namespace {

struct Case {
  const char* name;
  ModelConfig config;
  DType dtype;
};
const Case kCases[] = {
    {"LlamaFp32", tiny_llama(false), DType::f32},
    {"LlamaTiedBf16", tiny_llama(true), DType::bf16},
    {"Gpt2Fp32", tiny_gpt2(true), DType::f32},
    {"Gpt2UntiedBf16", tiny_gpt2(false), DType::bf16},
};

class ExactnessTest : public testing::TestWithParam<Case> {
 protected:
  ExactnessTest() : harness_(GetParam().config, GetParam().dtype) {
    harness_.load(random_parameters(harness_.model().units(), 11));
  }
  struct Outcome {
    double loss;
    std::vector<std::vector<float>> gradients;
    std::vector<float> dx;
    bool operator==(const Outcome&) const = default;
  };
  Outcome train(const Rows& rows, TrainMode mode) {
    harness_.zero_gradients();
    Outcome outcome{harness_.train(rows, 0.125f, mode), gradients(), harness_.dx()};
    return outcome;
  }
  std::vector<std::vector<float>> gradients() const {
    std::vector<std::vector<float>> all;
    for (size_t u = 0; u < harness_.model().units().size(); ++u) all.push_back(harness_.gradient_copy(u));
    return all;
  }

  mutable Harness harness_;
  Rows rows_ = random_rows(3, 7, GetParam().config.vocab, 3);
};

TEST_P(ExactnessTest, RecomputedGradientsAreTheSameBits) {
  const Outcome kept = train(rows_, {});
  EXPECT_TRUE(train(rows_, {.recompute = true}) == kept);
}

TEST_P(ExactnessTest, InputGradientMayTakeTheMemoryOfTheOutputs) {
  const Outcome apart = train(rows_, {});
  EXPECT_TRUE(train(rows_, {.alias_dx = true}) == apart);
  EXPECT_TRUE(train(rows_, {.recompute = true, .alias_dx = true}) == apart);
}

TEST_P(ExactnessTest, LossIsTheSameBitsWithoutGradients) {
  EXPECT_EQ(harness_.evaluate(rows_), train(rows_, {}).loss);
}

TEST_P(ExactnessTest, ShapesMayAlternate) {
  const Rows other = random_rows(2, 11, GetParam().config.vocab, 4);
  const Outcome first = train(rows_, {});
  train(other, {});
  EXPECT_TRUE(train(rows_, {}) == first);
}

TEST_P(ExactnessTest, RowsWithoutLabelsGiveZeroLossAndZeroGradients) {
  std::ranges::fill(rows_.labels, -100);
  const Outcome outcome = train(rows_, {});
  EXPECT_EQ(outcome.loss, 0);
  for (const auto& unit : outcome.gradients)
    for (const float g : unit) ASSERT_EQ(g, 0);
  for (const float g : outcome.dx) ASSERT_EQ(g, 0);
}

TEST_P(ExactnessTest, LogitsGiveTheLoss) {
  const double loss = harness_.evaluate(rows_);
  const std::vector<float> logits = harness_.logits(rows_);
  const size_t vocab = size_t(GetParam().config.vocab);
  double expected = 0;
  for (size_t r = 0; r < rows_.labels.size(); ++r) {
    if (rows_.labels[r] < 0) continue;
    double total = 0;
    for (size_t i = 0; i < vocab; ++i) total += std::exp(double(logits[r * vocab + i]));
    expected += std::log(total) - double(logits[r * vocab + size_t(rows_.labels[r])]);
  }
  EXPECT_NEAR(loss, expected, 1e-5 * expected);
}

INSTANTIATE_TEST_SUITE_P(Models, ExactnessTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

Rows row_of(const Rows& rows, int64_t row) {
  const auto part = [&](const std::vector<int32_t>& all) {
    return std::vector<int32_t>(all.begin() + row * rows.seq, all.begin() + (row + 1) * rows.seq);
  };
  return {1, rows.seq, part(rows.tokens), part(rows.labels)};
}

class SplitTest : public testing::TestWithParam<Case> {};

// Case: token losses of two micro-batches with 2 and 9 counted labels are summed and divided once by 11.
TEST_P(SplitTest, MicroBatchesAddUpToTheBatch) {
  const ModelConfig& config = GetParam().config;
  Harness whole(config, DType::f32), parts(config, DType::f32);
  const Parameters parameters = random_parameters(whole.model().units(), 13);
  whole.load(parameters);
  parts.load(parameters);
  Rows rows = random_rows(2, 9, config.vocab, 17);
  for (size_t i = 0; i < 18; ++i)
    rows.labels[i] = i >= 2 && i < 9 ? -100 : int32_t(i) % int32_t(config.vocab);

  const double loss = whole.train(rows, 1.0f / 11);
  const double sum = parts.train(row_of(rows, 0), 1.0f / 11) + parts.train(row_of(rows, 1), 1.0f / 11);
  EXPECT_NEAR(loss, sum, 1e-6 * loss);
  for (size_t u = 0; u < whole.model().units().size(); ++u) {
    const std::vector<float> expected = whole.gradient_copy(u), found = parts.gradient_copy(u);
    float scale = 0;
    for (const float g : expected) scale = std::max(scale, std::abs(g));
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 1e-5f * scale) << whole.model().units()[u].name << " " << i;
  }
}

TEST_P(SplitTest, AMicroBatchWithoutLabelsChangesNothing) {
  Harness harness(GetParam().config, DType::f32);
  harness.load(random_parameters(harness.model().units(), 13));
  harness.train(random_rows(2, 9, GetParam().config.vocab, 17), 0.1f);
  const std::vector<float> before = harness.gradient_copy(1);
  Rows ignored = random_rows(1, 9, GetParam().config.vocab, 19);
  std::ranges::fill(ignored.labels, -100);
  EXPECT_EQ(harness.train(ignored, 0.1f), 0);
  EXPECT_EQ(harness.gradient_copy(1), before);
}

TEST_P(SplitTest, Bf16LossIsWithinOnePercentOfFp32) {
  Harness fp32(GetParam().config, DType::f32), half(GetParam().config, DType::bf16);
  const Parameters parameters = random_parameters(fp32.model().units(), 23);
  fp32.load(parameters);
  half.load(parameters);
  const Rows rows = random_rows(4, 16, GetParam().config.vocab, 29);
  const double expected = fp32.train(rows, 0.25f), found = half.train(rows, 0.25f);
  EXPECT_NEAR(found, expected, 1e-2 * expected);
  EXPECT_NE(found, expected);
  for (size_t u = 0; u < fp32.model().units().size(); ++u) {  // the gradients point the same way
    const std::vector<float> a = fp32.gradient_copy(u), b = half.gradient_copy(u);
    double aa = 0, bb = 0, ab = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      aa += double(a[i]) * a[i];
      bb += double(b[i]) * b[i];
      ab += double(a[i]) * b[i];
    }
    EXPECT_GT(ab / std::sqrt(aa * bb), 0.99) << fp32.model().units()[u].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SplitTest,
                         testing::Values(Case{"Llama", tiny_llama(false), DType::f32},
                                         Case{"LlamaTied", tiny_llama(true), DType::f32},
                                         Case{"Gpt2", tiny_gpt2(true), DType::f32}),
                         [](const auto& info) { return info.param.name; });

TEST(ModelDeathTest, ASequenceBeyondTheModelsPositionsAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ModelConfig config = tiny_gpt2(true);
  config.max_seq = 8;
  EXPECT_DEATH(
      {
        Harness harness(config, DType::f32);
        harness.load(random_parameters(harness.model().units(), 1));
        harness.evaluate(random_rows(1, 9, config.vocab, 1));
      },
      "max_seq");
}

}  // namespace
}  // namespace headrace::test
