// SPDX-License-Identifier: Apache-2.0
// The update against the published formula: hand-computed steps, and a float64 reference written here.
#include <algorithm>
#include <array>
#include <string>

#include "tests/cpu_adam/adam_state.h"

namespace headrace::adam::test {
namespace {

class Formula : public ::testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Isas, Formula, ::testing::ValuesIn(supported_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

void step_both(Isa isa, State& s, Gradient grad, const StepScalars& scalars, State& split) {
  adamw(isa, s.w, s.m, s.v, grad, scalars);
  adamw(isa, split.hi, split.lo, split.m, split.v, grad, scalars);
}

// w = 1, gradients .5, -.25, .125, lr .1: values of an independent fp32 reference. They differ from ours by
// the order of roundings only, which is a few units of 2^-24.
TEST_P(Formula, ThreeStepsWithAndWithoutDecay) {
  const struct {
    double decay;
    float expected[3];
  } runs[] = {{0.0, {.9000000358f, .8733663559f, .8393234611f}},
              {0.1, {.8900000453f, .8544663787f, .8118788004f}}};
  const float grads[] = {.5f, -.25f, .125f};
  for (const auto& run : runs) {
    State plain({1.0f}), split({1.0f});
    const Options options{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = run.decay};
    for (uint64_t t = 1; t <= 3; ++t) {
      step_both(GetParam(), plain, {&grads[t - 1], DType::f32}, make_scalars(options, t, 1.0), split);
      EXPECT_NEAR(plain.w[0], run.expected[t - 1], 2e-7) << "decay " << run.decay << " step " << t;
      EXPECT_NEAR(split.merged()[0], run.expected[t - 1], 2e-7) << "decay " << run.decay << " step " << t;
    }
  }
}

// Each of the two steps moves a weight by lr x 1 / (1 + 1e-8): 1 - 0.01 - 0.01.
TEST_P(Formula, TwoStepsOfAllOnes) {
  const std::vector<float> ones(1000, 1.0f);
  State state(ones);
  for (uint64_t t = 1; t <= 2; ++t) {
    adamw(GetParam(), state.w, state.m, state.v, gradient_of(ones), make_scalars({.lr = 0.01}, t, 1.0));
  }
  for (const float w : state.w) ASSERT_NEAR(w, 0.98000002f, 6e-8);
}

// The gradient is seen through m: with beta1 = 0, m is the scaled gradient itself.
TEST_P(Formula, ClippingThreeFourToNormOneGivesPointSixPointEight) {
  const std::vector<float> grad = {3.0f, 4.0f};
  const double norm = std::sqrt(sum_squares(GetParam(), gradient_of(grad), grad.size()).sum);
  EXPECT_EQ(norm, 5.0);
  State state({1.0f, 1.0f});
  const StepScalars scalars = make_scalars({.beta1 = 0.0}, 1, clip_coefficient(norm, 1.0));
  adamw(GetParam(), state.w, state.m, state.v, gradient_of(grad), scalars);
  EXPECT_NEAR(state.m[0], 0.6, 2e-7);
  EXPECT_NEAR(state.m[1], 0.8, 2e-7);
}

struct Reference {
  std::vector<double> w, m, v;

  explicit Reference(const std::vector<float>& weights)
      : w(weights.begin(), weights.end()), m(weights.size()), v(weights.size()) {}

  void step(const Options& o, int t, const std::vector<float>& grad, double grad_scale) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = grad[i] * grad_scale;
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(o.beta1, t));
      const double v_hat = v[i] / (1 - std::pow(o.beta2, t));
      w[i] = w[i] - o.lr * o.weight_decay * w[i] - o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
  }
};

// Weights of 0.02 to 0.1 and gradients of scale 1e-6 to 0.1 for each parameter, as a language model has them.
TEST_P(Formula, StaysCloseToFloat64Over100Steps) {
  const Options options{.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
  constexpr size_t kCount = 4099;
  Random random(1);
  std::vector<float> weights(kCount), scale(kCount), grad(kCount);
  for (float& w : weights) w = float(random.uniform(0.02, 0.1)) * (random.next() % 2 ? 1.0f : -1.0f);
  for (float& s : scale) s = float(std::pow(10.0, random.uniform(-6, -1)));
  State plain(weights), split(weights);
  Reference reference(weights);
  for (int t = 1; t <= 100; ++t) {
    for (size_t i = 0; i < kCount; ++i) grad[i] = scale[i] * float(random.uniform(-1, 1));
    step_both(GetParam(), plain, gradient_of(grad), make_scalars(options, uint64_t(t), 0.5), split);
    reference.step(options, t, grad, 0.5);
  }
  double worst_w = 0, worst_v = 0, worst_step = 0;
  for (size_t i = 0; i < kCount; ++i) {
    worst_w = std::max(worst_w, std::abs(plain.w[i] / reference.w[i] - 1));
    worst_v = std::max(worst_v, std::abs(plain.v[i] / reference.v[i] - 1));
    worst_step = std::max(worst_step, std::abs(plain.w[i] - reference.w[i]) / options.lr);
  }
  EXPECT_LE(worst_w, 3e-6);
  EXPECT_LE(worst_v, 3e-6);
  EXPECT_LE(worst_step, 2e-3);
  EXPECT_TRUE(same_bits(split.merged(), plain.w));
  EXPECT_TRUE(same_bits(split.m, plain.m));
  EXPECT_TRUE(same_bits(split.v, plain.v));
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(split.hi[i], split_master(plain.w[i]).hi) << i;
}

TEST_P(Formula, WithoutDecayAndGradientWeightsKeepTheirBits) {
  Random random(2);
  std::vector<float> weights(333);
  for (float& w : weights) w = float(random.uniform(-2, 2));
  State plain(weights), split(weights);
  const std::vector<float> zero(weights.size());
  step_both(GetParam(), plain, gradient_of(zero), make_scalars({.weight_decay = 0.0}, 7, 1.0), split);
  EXPECT_TRUE(same_bits(plain.w, weights));
  EXPECT_TRUE(same_bits(split.merged(), weights));
}

TEST_P(Formula, PaddingOfZerosStaysExactlyZero) {
  const std::vector<float> zero(77);
  const std::vector<bf16> zero16(77);
  State plain(zero), split(zero);
  for (uint64_t t = 1; t <= 5; ++t) {
    const StepScalars scalars = make_scalars({.weight_decay = 0.1}, t, 0.25);
    step_both(GetParam(), plain, gradient_of(zero), scalars, split);
    step_both(GetParam(), plain, gradient_of(zero16), scalars, split);
  }
  for (const auto* values : {&plain.w, &plain.m, &plain.v, &split.m, &split.v}) {
    EXPECT_TRUE(same_bits(*values, zero));
  }
  EXPECT_EQ(split.hi, zero16);
  EXPECT_EQ(split.lo, std::vector<uint16_t>(77));
}

TEST(Scalars, AreTheDoubleValuesRoundedOnce) {
  const StepScalars s =
      make_scalars({.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01}, 2, 0.25);
  EXPECT_EQ(s.one_minus_beta1, 0.1f);
  EXPECT_EQ(s.one_minus_beta2, 0.001f);  // 1 - 0.999f would be 1.3e-5 off
  EXPECT_EQ(s.eps, 1e-8f);
  EXPECT_FLOAT_EQ(s.neg_step_size, float(-0.1 / 0.19));               // 1 - 0.81
  EXPECT_FLOAT_EQ(s.inv_sqrt_bias2, float(1 / std::sqrt(0.001999)));  // 1 - 0.998001
  EXPECT_FLOAT_EQ(s.neg_lr_decay, -0.001f);
  EXPECT_EQ(s.grad_scale, 0.25f);
}

// A resumed run makes the scalars of step t without having seen the steps before.
TEST(Scalars, OfAStepDoNotDependOnEarlierSteps) {
  const Options options{.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
  for (const uint64_t t : {1, 10, 100, 1000}) {
    const auto fresh = std::bit_cast<std::array<uint32_t, 10>>(make_scalars(options, t, 1.0));
    for (uint64_t before = 1; before < t; ++before) make_scalars(options, before, 1.0);
    EXPECT_EQ(fresh, (std::bit_cast<std::array<uint32_t, 10>>(make_scalars(options, t, 1.0)))) << t;
    const double bias1 = -std::expm1(double(t) * std::log(0.9)),
                 bias2 = -std::expm1(double(t) * std::log(0.95));
    EXPECT_FLOAT_EQ(std::bit_cast<float>(fresh[2]), float(1 / std::sqrt(bias2))) << t;
    EXPECT_FLOAT_EQ(std::bit_cast<float>(fresh[4]), float(-3e-4 / bias1)) << t;
  }
}

TEST(ScalarsDeathTest, ImpossibleValuesAbort) {
  EXPECT_DEATH(make_scalars({}, 0, 1.0), "steps count from 1");
  EXPECT_DEATH(make_scalars({.beta1 = 1.0}, 1, 1.0), "betas");
  EXPECT_DEATH(make_scalars({.eps = 0.0}, 1, 1.0), "eps");
}

TEST(SpansDeathTest, OfDifferentLengthAbort) {
  std::vector<float> four(4), three(3);
  EXPECT_DEATH(adamw(four, three, four, gradient_of(four), make_scalars({}, 1, 1.0)), "spans differ");
}

}  // namespace
}  // namespace headrace::adam::test
