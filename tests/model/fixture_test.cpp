// SPDX-License-Identifier: Apache-2.0
// The first step of the PyTorch fixtures: its loss, gradient norm and the norm of every segment's gradient.
#include "tests/fixtures/fixture.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model_harness.h"

namespace headrace::test {
namespace {

class FixtureTest : public testing::TestWithParam<const char*> {};

TEST_P(FixtureTest, DeclaresTheSameSegments) {
  const Fixture fixture = load_fixture(GetParam());
  const auto model = make_model(fixture.model, DType::f32, DeviceKind::host);
  ASSERT_EQ(fixture.units.size(), model->units().size());
  for (size_t u = 0; u < fixture.units.size(); ++u) {
    const UnitSpec& unit = model->units()[u];
    EXPECT_EQ(fixture.units[u].name, unit.name);
    ASSERT_EQ(fixture.units[u].segments.size(), unit.segments.size()) << unit.name;
    for (size_t s = 0; s < unit.segments.size(); ++s) {
      const Segment& expected = fixture.units[u].segments[s].segment;
      EXPECT_EQ(unit.segments[s].name, expected.name);
      EXPECT_EQ(unit.segments[s].shape, expected.shape) << expected.name;
      EXPECT_EQ(unit.segments[s].weight_decay, expected.weight_decay) << expected.name;
    }
  }
}

TEST_P(FixtureTest, FirstStepHasPyTorchsLossAndGradientNorms) {
  const Fixture fixture = load_fixture(GetParam());
  Harness harness(fixture.model, DType::f32);
  for (size_t u = 0; u < fixture.units.size(); ++u)
    for (size_t s = 0; s < fixture.units[u].segments.size(); ++s) {
      const FixtureSegment& segment = fixture.units[u].segments[s];
      harness.load_segment(u, s,
                           std::span(fixture.initial).subspan(size_t(segment.offset), size_t(segment.elems)));
    }

  const FixtureStep& step = fixture.steps.front();
  const double counted = double(step.counted());
  double loss_sum = 0;
  for (const FixtureMicroBatch& m : step.micro_batches)
    loss_sum += harness.train({fixture.batch, fixture.seq, m.tokens, m.labels}, float(1 / counted));
  EXPECT_NEAR(loss_sum / counted, step.loss, 1e-5 * step.loss);

  double total = 0;
  for (size_t u = 0; u < fixture.units.size(); ++u)
    for (size_t s = 0; s < fixture.units[u].segments.size(); ++s) {
      const FixtureSegment& segment = fixture.units[u].segments[s];
      double squares = 0;
      for (int64_t i = 0; i < segment.elems; ++i) squares += std::pow(double(harness.gradient(u, s)[i]), 2);
      EXPECT_NEAR(std::sqrt(squares), segment.first_grad_norm, 1e-4 * segment.first_grad_norm)
          << fixture.units[u].name << " " << segment.segment.name;
      total += squares;
    }
  EXPECT_NEAR(std::sqrt(total), step.grad_norm, 1e-4 * step.grad_norm);
}

TEST_P(FixtureTest, ClipsInSomeStepsOnly) {
  const Fixture fixture = load_fixture(GetParam());
  int64_t clipped = 0;
  for (const FixtureStep& step : fixture.steps) clipped += step.grad_norm > fixture.max_norm;
  EXPECT_EQ(fixture.steps.size(), 10u);
  EXPECT_GT(clipped, 0);
  EXPECT_LT(clipped, 10);
  EXPECT_NE(fixture.initial, fixture.final);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, FixtureTest, testing::Values("tiny_llama", "tiny_gpt2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace headrace::test
