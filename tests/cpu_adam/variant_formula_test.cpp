// SPDX-License-Identifier: Apache-2.0
// The rules against their papers in float64, the documented roundings spelled out, and what rounding to bf16
// does to a state over many steps.
#include <array>

#include "tests/cpu_adam/variant_state.h"

namespace headrace::adam::test {
namespace {

Options options_of(Rule rule) {
  return {
      .rule = rule, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.05, .seed = 3};
}

/// The papers' formulas, as they are written there.
struct Reference {
  double w, m = 0, v = 0;

  void step(const Options& o, int t, double g) {
    switch (o.rule) {
      case Rule::adamw:
      case Rule::adam: {
        if (o.rule == Rule::adam) g += o.weight_decay * w;
        m = o.beta1 * m + (1 - o.beta1) * g;
        v = o.beta2 * v + (1 - o.beta2) * g * g;
        const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
        const double decay = o.rule == Rule::adamw ? o.weight_decay * w : 0;
        w -= o.lr * (m_hat / (std::sqrt(v_hat) + o.eps) + decay);
        break;
      }
      case Rule::lion: {
        const double c = o.beta1 * m + (1 - o.beta1) * g;
        w -= o.lr * (double(c > 0) - double(c < 0) + o.weight_decay * w);
        m = o.beta2 * m + (1 - o.beta2) * g;
        break;
      }
      case Rule::adagrad:
        g += o.weight_decay * w;
        v += g * g;
        w -= o.lr * g / (std::sqrt(v) + o.eps);
        break;
    }
  }
};

class Rules : public testing::TestWithParam<Rule> {};
INSTANTIATE_TEST_SUITE_P(
    All, Rules, testing::Values(Rule::adamw, Rule::adam, Rule::lion, Rule::adagrad), [](const auto& info) {
      return std::string(std::array{"adamw", "adam", "lion", "adagrad"}[size_t(info.param)]);
    });

TEST_P(Rules, StayCloseToTheirPapersInFloat64) {
  const Options options = options_of(GetParam());
  constexpr size_t kCount = 1003;
  for (const auto weights : {WeightFormat::fp32, WeightFormat::fp32_copy, WeightFormat::split}) {
    Random random(1);
    std::vector<float> start(kCount), grad(kCount);
    for (float& w : start) w = float(random.uniform(0.02, 0.1)) * (random.next() % 2 ? 1.0f : -1.0f);
    const Format format{.rule = GetParam(), .weights = weights};
    VariantState state(format, start);
    std::vector<Reference> reference;
    for (const float w : start) reference.push_back({w});
    for (int t = 1; t <= 100; ++t) {
      for (float& g : grad) g = float(random.uniform(-1, 1.5));
      update(format, state.span(gradient_of(grad)), make_scalars(options, uint64_t(t), 0.5));
      for (size_t i = 0; i < kCount; ++i) reference[i].step(options, t, 0.5 * double(grad[i]));
    }
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(state.weight(i), reference[i].w, 2e-3 * options.lr) << i;
      ASSERT_TRUE(GetParam() == Rule::adagrad || std::abs(state.m(i) - reference[i].m) < 1e-6) << i;
      ASSERT_TRUE(GetParam() == Rule::lion || std::abs(state.v(i) / reference[i].v - 1) < 3e-6) << i;
    }
  }
}

/// headrace/adam.h, "The roundings".
void documented(Rule rule, float& w, float& m, float& v, float grad, const StepScalars& s) {
  float g = grad * s.grad_scale;
  if (rule == Rule::adam || rule == Rule::adagrad) g = std::fma(s.l2, w, g);
  if (rule == Rule::lion) {
    const float c = std::fma(s.one_minus_beta1, g - m, m);
    m = std::fma(s.one_minus_beta2, g - m, m);
    w = w + std::fma(float(c > 0) - float(c < 0), s.neg_step_size, w * s.neg_lr_decay);
  } else if (rule == Rule::adagrad) {
    v = std::fma(g, g, v);
    w = std::fma(g / (std::sqrt(v) + s.eps), s.neg_step_size, w);
  } else {
    m = std::fma(s.one_minus_beta1, g - m, m);
    v = std::fma(s.one_minus_beta2, std::fma(g, g, -v), v);
    const float q = m / std::fma(std::sqrt(v), s.inv_sqrt_bias2, s.eps);
    w = rule == Rule::adam ? std::fma(q, s.neg_step_size, w)
                           : w + std::fma(q, s.neg_step_size, w * s.neg_lr_decay);
  }
}

TEST_P(Rules, RoundAsDocumented) {
  constexpr size_t kCount = 20'003;
  Random random(2);
  std::vector<float> w(kCount), m(kCount), v(kCount), grad(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    w[i] = float(random.uniform(-0.1, 0.1));
    m[i] = float(random.uniform(-1e-3, 1e-3));
    v[i] = float(random.uniform(0, 1e-5));
    grad[i] = float(random.uniform(-1e-2, 1e-2));
  }
  const StepScalars s = make_scalars(options_of(GetParam()), 4, 0.3);
  VariantState copied({.rule = GetParam(), .weights = WeightFormat::fp32_copy}, w, m, v);
  VariantState narrow({.rule = GetParam(), .moments = MomentFormat::bf16_m}, w, m, v);
  update(copied.format, copied.span(gradient_of(grad)), s);
  const bool has_narrow = offered(narrow.format);
  if (has_narrow) update(narrow.format, narrow.span(gradient_of(grad)), s);
  for (size_t i = 0; i < kCount; ++i) {
    float want_w = w[i], want_m = m[i], want_v = v[i];
    documented(GetParam(), want_w, want_m, want_v, grad[i], s);
    ASSERT_TRUE(same(copied.w[i], want_w) && same(copied.m(i), want_m) && same(copied.v(i), want_v)) << i;
    ASSERT_EQ(copied.copy[i], to_bf16(want_w)) << i;
    if (!has_narrow) continue;
    want_w = w[i], want_m = to_float(to_bf16(m[i])), want_v = v[i];
    documented(GetParam(), want_w, want_m, want_v, grad[i], s);
    ASSERT_TRUE(same(narrow.w[i], want_w) && same(narrow.v(i), want_v)) << i;
    ASSERT_EQ(narrow.m16[i], to_bf16(want_m)) << i;
  }
}

// fp32 v in (1, 1 + 2^-7) has two bf16 neighbours; rounding up happens with the odds of the remainder.
TEST(StochasticRounding, TakesEitherNeighbourWithTheOddsOfTheRemainder) {
  constexpr size_t kCount = 200'000;
  const Format format{.weights = WeightFormat::split, .moments = MomentFormat::bf16};
  for (const double part : {0.0, 0.125, 0.5, 0.9}) {
    // beta2 = 0: v is the square of the gradient, rounded to fp32.
    const double target = 1 + part * 0x1p-7;
    const std::vector<float> grad(kCount, float(std::sqrt(target)));
    VariantState state(format, std::vector<float>(kCount, 1.0f));
    const Options options{.beta1 = 0.5, .beta2 = 0.0, .seed = 9};
    update(format, state.span(gradient_of(grad)), make_scalars(options, 1, 1.0));
    double up = 0;
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(state.v(i) == 1.0f || state.v(i) == 1.0f + 0x1p-7f) << state.v(i);
      up += state.v(i) != 1.0f;
    }
    // Five standard deviations of a binomial share, and one unit of the 2^-16 the odds are made of.
    const double sigma = std::sqrt(part * (1 - part) / double(kCount));
    EXPECT_NEAR(up / double(kCount), part, 5 * sigma + 0x1p-10) << part;
  }
}

TEST(StochasticRounding, DrawsOtherBitsForOtherSeedsStepsAndElements) {
  constexpr size_t kCount = 4096;
  const Format format{.weights = WeightFormat::split, .moments = MomentFormat::bf16};
  const std::vector<float> grad(kCount, 0.3f);
  const auto drawn = [&](uint64_t seed, uint64_t t, uint64_t first) {
    // Scalars of step 1 but for the key, so that nothing but the bits differs.
    StepScalars s = make_scalars({.seed = seed}, 1, 1.0);
    s.random_key = make_scalars({.seed = seed}, t, 1.0).random_key;
    VariantState state(format, std::vector<float>(kCount, 1.0f));
    update(format, state.span(gradient_of(grad), first), s);
    return state.v16;
  };
  const std::vector<bf16> base = drawn(1, 1, 0);
  EXPECT_EQ(base, drawn(1, 1, 0));
  for (const auto& other : {drawn(2, 1, 0), drawn(1, 2, 0), drawn(1, 1, 1), drawn(1, 1, uint64_t(1) << 32)}) {
    size_t equal = 0;
    for (size_t i = 0; i < kCount; ++i) equal += base[i] == other[i];
    EXPECT_LT(equal, kCount * 3 / 4);
  }
}

// Half way the gradients fall to a tenth, and v has to follow by steps of 0.001 v, a quarter of bf16's
// smallest: rounding to nearest would leave it where it was.
TEST(StochasticRounding, LetsTheSecondMomentFollowSmallerGradients) {
  constexpr size_t kCount = 4096;
  const Format format{.weights = WeightFormat::split, .moments = MomentFormat::bf16};
  const Options options{
      .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .seed = 4};
  Random random(5);
  std::vector<float> start(kCount, 0.05f), grad(kCount);
  std::vector<bf16> grad16(kCount);
  VariantState state(format, start);
  std::vector<double> v(kCount);
  double nearest = 0;
  for (int t = 1; t <= 1000; ++t) {
    const double scale = t <= 500 ? 1e-2 : 1e-3;
    for (size_t i = 0; i < kCount; ++i) {
      grad16[i] = to_bf16(float(scale * random.uniform(0.5, 1.5)));
      const double g = to_float(grad16[i]);
      v[i] += (1 - options.beta2) * (g * g - v[i]);
      if (i == 0) nearest = to_float(to_bf16(float(nearest + (1 - options.beta2) * (g * g - nearest))));
    }
    update(format, state.span(gradient_of(grad16)), make_scalars(options, uint64_t(t), 1.0));
  }
  double sum = 0;
  for (size_t i = 0; i < kCount; ++i) sum += state.v(i) / v[i] - 1;
  EXPECT_LE(std::abs(sum / double(kCount)), 1e-3);
  EXPECT_GT(std::abs(nearest / v[0] - 1), 0.1);  // what this is for
}

}  // namespace
}  // namespace headrace::adam::test
