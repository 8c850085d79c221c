// SPDX-License-Identifier: Apache-2.0
// The PyTorch fixtures: declaration, losses and gradient norms of the model, and its ten steps under a plain
// AdamW.
#include "tests/fixtures/fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
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

/// The fixture's model with weights in double, trained by a plain AdamW written here.
class FixtureRun {
 public:
  explicit FixtureRun(const Fixture& fixture)
      : fixture_(fixture),
        harness_(fixture.model, DType::f32),
        weights_(fixture.initial.begin(), fixture.initial.end()),
        m_(weights_.size()),
        v_(weights_.size()) {}

  /// Forward and backward of a step's micro-batches; returns the mean loss.
  double accumulate(const FixtureStep& step) {
    each_segment([&](size_t u, size_t s, const FixtureSegment& segment) {
      const auto first = weights_.begin() + segment.offset;
      harness_.load_segment(u, s, std::vector<float>(first, first + segment.elems));
    });
    harness_.zero_gradients();
    const double counted = double(step.counted());
    double sum = 0;
    for (const FixtureMicroBatch& m : step.micro_batches)
      sum += harness_.train({fixture_.batch, fixture_.seq, m.tokens, m.labels}, float(1 / counted));
    return sum / counted;
  }
  double squares(size_t u, size_t s, const FixtureSegment& segment) const {
    double sum = 0;
    for (int64_t i = 0; i < segment.elems; ++i) sum += std::pow(double(harness_.gradient(u, s)[i]), 2);
    return sum;
  }
  double grad_norm() const {
    double sum = 0;
    each_segment([&](size_t u, size_t s, const FixtureSegment& segment) { sum += squares(u, s, segment); });
    return std::sqrt(sum);
  }
  /// Loshchilov & Hutter 2019, step t counted from 1.
  void update(int t, double norm) {
    const adam::Options& o = fixture_.adam;
    const double clip = norm > fixture_.max_norm ? fixture_.max_norm / norm : 1;
    const double bias1 = 1 - std::pow(o.beta1, t), bias2 = 1 - std::pow(o.beta2, t);
    each_segment([&](size_t u, size_t s, const FixtureSegment& segment) {
      const double decay = segment.segment.weight_decay ? o.weight_decay : 0;
      for (int64_t i = 0; i < segment.elems; ++i) {
        const size_t at = size_t(segment.offset + i);
        const double g = double(harness_.gradient(u, s)[i]) * clip;
        m_[at] = o.beta1 * m_[at] + (1 - o.beta1) * g;
        v_[at] = o.beta2 * v_[at] + (1 - o.beta2) * g * g;
        weights_[at] -= o.lr * decay * weights_[at];
        weights_[at] -= o.lr * (m_[at] / bias1) / (std::sqrt(v_[at] / bias2) + o.eps);
      }
    });
  }
  template <class F>
  void each_segment(F visit) const {
    for (size_t u = 0; u < fixture_.units.size(); ++u)
      for (size_t s = 0; s < fixture_.units[u].segments.size(); ++s)
        visit(u, s, fixture_.units[u].segments[s]);
  }
  const std::vector<double>& weights() const { return weights_; }

 private:
  const Fixture& fixture_;
  Harness harness_;
  std::vector<double> weights_, m_, v_;
};

TEST_P(FixtureTest, FirstStepHasPyTorchsLossAndGradientNorms) {
  const Fixture fixture = load_fixture(GetParam());
  FixtureRun run(fixture);
  const FixtureStep& step = fixture.steps.front();
  EXPECT_NEAR(run.accumulate(step), step.loss, 1e-5 * step.loss);
  EXPECT_NEAR(run.grad_norm(), step.grad_norm, 1e-4 * step.grad_norm);
  run.each_segment([&](size_t u, size_t s, const FixtureSegment& segment) {
    EXPECT_NEAR(std::sqrt(run.squares(u, s, segment)), segment.first_grad_norm,
                1e-4 * segment.first_grad_norm)
        << fixture.units[u].name << " " << segment.segment.name;
  });
}

TEST_P(FixtureTest, TenStepsOfAPlainAdamWFollowPyTorch) {
  const Fixture fixture = load_fixture(GetParam());
  FixtureRun run(fixture);
  for (size_t t = 1; t <= fixture.steps.size(); ++t) {
    const FixtureStep& step = fixture.steps[t - 1];
    EXPECT_NEAR(run.accumulate(step), step.loss, 1e-5 * step.loss) << "step " << t;
    const double norm = run.grad_norm();
    EXPECT_NEAR(norm, step.grad_norm, 1e-4 * step.grad_norm) << "step " << t;
    run.update(int(t), norm);
  }
  double worst = 0;
  for (size_t i = 0; i < fixture.final.size(); ++i)
    worst = std::max(worst, std::abs(run.weights()[i] - double(fixture.final[i])));
  EXPECT_LT(worst, 1e-4);
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
