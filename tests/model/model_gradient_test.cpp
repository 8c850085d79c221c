// SPDX-License-Identifier: Apache-2.0
// The whole model in fp32 against the double-precision reference: its loss, and every gradient against
// central finite differences of the reference.
#include <gtest/gtest.h>

#include <algorithm>

#include "model_cases.h"
#include "model_harness.h"

namespace headrace::test {
namespace {

struct Case {
  const char* name;
  ModelConfig config;
  int64_t batch, seq;
};

ModelConfig with(ModelConfig config, const std::function<void(ModelConfig&)>& change) {
  change(config);
  return config;
}

const Case kCases[] = {
    {"LlamaUntied", tiny_llama(false), 2, 6},
    {"LlamaTied", tiny_llama(true), 2, 6},
    {"Gpt2Tied", tiny_gpt2(true), 2, 6},
    {"Gpt2Untied", tiny_gpt2(false), 2, 6},
    {"LlamaOneToken", tiny_llama(false), 1, 1},
    {"Gpt2OneToken", tiny_gpt2(true), 1, 1},
    {"LlamaOneTokenRows", tiny_llama(true), 5, 1},
    {"LlamaAsManyKvHeadsAsHeads", with(tiny_llama(false), [](ModelConfig& c) { c.kv_heads = 4; }), 1, 5},
    {"LlamaOneKvHead", with(tiny_llama(false), [](ModelConfig& c) { c.kv_heads = 1; }), 2, 3},
    {"LlamaOddExtents",
     with(tiny_llama(false),
          [](ModelConfig& c) { c.hidden = 14, c.heads = 7, c.kv_heads = 7, c.ffn = 5, c.vocab = 3; }),
     1, 7},
    {"Gpt2OddHeadSize",
     with(tiny_gpt2(true), [](ModelConfig& c) { c.hidden = 15, c.ffn = 7, c.vocab = 101, c.layers = 1; }), 2,
     4},
    {"LlamaOtherThetaAndEps",
     with(tiny_llama(false), [](ModelConfig& c) { c.rope_theta = 50.0, c.norm_eps = 0.1; }), 1, 9},
    {"Gpt2OtherEps", with(tiny_gpt2(false), [](ModelConfig& c) { c.norm_eps = 0.1; }), 1, 9},
    // More rows than one chunk of the loss, and a last chunk that is not full.
    {"LlamaSeveralLossChunks",
     with(tiny_llama(false),
          [](ModelConfig& c) {
            c.layers = 1, c.hidden = 8, c.heads = 2, c.kv_heads = 1, c.ffn = 6;
            c.vocab = 11;
          }),
     20, 15},
};

class GradientTest : public testing::TestWithParam<Case> {
 protected:
  GradientTest()
      : c_(GetParam()),
        harness_(c_.config, DType::f32),
        reference_(c_.config, c_.batch, c_.seq),
        parameters_(random_parameters(harness_.model().units(), 5)),
        rows_(random_rows(c_.batch, c_.seq, c_.config.vocab, 7)) {
    harness_.load(parameters_);
  }
  double reference_loss() const { return reference_.loss(parameters_, rows_.tokens, rows_.labels); }
  /// fp32 sums of a few hundred terms of the size of `scale`.
  static void expect_near(double found, double expected, double scale, const std::string& what) {
    EXPECT_NEAR(found, expected, 1e-4 * std::abs(expected) + 2e-6 * scale) << what;
  }

  Case c_;
  Harness harness_;
  ReferenceModel reference_;
  Parameters parameters_;
  Rows rows_;
};

constexpr double kStep = 1e-4;  // finite differences: error of about kStep^2
constexpr float kScale = 0.25f;

TEST_P(GradientTest, LossEqualsTheReference) {
  const double expected = reference_loss();
  EXPECT_NEAR(harness_.evaluate(rows_), expected, 1e-5 * expected);
  EXPECT_NEAR(harness_.train(rows_, kScale), expected, 1e-5 * expected);
}

TEST_P(GradientTest, EverySegmentsGradientEqualsFiniteDifferences) {
  harness_.train(rows_, kScale);
  for (size_t u = 0; u < parameters_.size(); ++u) {
    for (size_t s = 0; s < parameters_[u].size(); ++s) {
      Vector& values = parameters_[u][s];
      const float* gradient = harness_.gradient(u, s);
      float scale = 0;
      for (size_t i = 0; i < values.size(); ++i) scale = std::max(scale, std::abs(gradient[i]));
      // About 16 elements spread over the segment, every row and column residue among them.
      const size_t stride = std::max<size_t>(1, values.size() / 16) | 1;
      for (size_t i = 0; i < values.size(); i += stride) {
        const double value = values[i];
        values[i] = value + kStep;
        const double above = reference_loss();
        values[i] = value - kStep;
        const double below = reference_loss();
        values[i] = value;
        expect_near(gradient[i], kScale * (above - below) / (2 * kStep), scale,
                    harness_.model().units()[u].name + " " + harness_.model().units()[u].segments[s].name +
                        "[" + std::to_string(i) + "]");
      }
    }
  }
}

TEST_P(GradientTest, InputGradientEqualsFiniteDifferences) {
  harness_.train(rows_, kScale);
  const std::vector<float> dx = harness_.dx();
  const Vector x = reference_.embed(parameters_, rows_.tokens);
  const float scale = std::abs(*std::ranges::max_element(dx, {}, [](float v) { return std::abs(v); }));
  const size_t stride = std::max<size_t>(1, x.size() / 40) | 1;
  for (size_t i = 0; i < x.size(); i += stride) {
    const auto shifted = [&](double by) {
      Vector moved = x;
      moved[i] += by;
      return reference_.loss_from(parameters_, moved, rows_.labels);
    };
    expect_near(dx[i], kScale * (shifted(kStep) - shifted(-kStep)) / (2 * kStep), scale,
                "dx[" + std::to_string(i) + "]");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GradientTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace headrace::test
