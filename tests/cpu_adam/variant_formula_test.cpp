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

/// One step with beta1 = beta2 = 0: m is the gradient and v its square, so what is decoded afterwards shows
/// what a value was encoded to.
VariantState encoded(const std::vector<float>& grad, uint64_t seed) {
  const Format format{.weights = WeightFormat::split24, .moments = MomentFormat::q8};
  VariantState state(format, std::vector<float>(grad.size(), 1.0f));
  const Options options{.lr = 0, .beta1 = 0, .beta2 = 0, .seed = seed};
  update(format, state.span(gradient_of(grad)), make_scalars(options, 1, 1.0));
  return state;
}

/// How far the two codes around a value are apart, in units of the scale.
double step_of_m(double x) {
  const double k = std::floor(127 * std::sqrt(x));
  return (2 * k + 1) / (127.0 * 127.0);
}
double step_of_v(double y) {
  const double k = std::floor(255 * std::pow(y, 0.25));
  return (std::pow(k + 1, 4) - std::pow(k, 4)) / std::pow(255.0, 4);
}

TEST(Blocks, TakeOneOfTheTwoNeighboursOfAValueAndItsMeanIsExact) {
  constexpr int kDraws = 4000;
  Random random(7);
  std::vector<float> grad(kBlockElems);
  for (size_t i = 0; i < kBlockElems; ++i)
    grad[i] = float(std::pow(10.0, random.uniform(-3, 0))) * (i % 2 ? 1.0f : -1.0f);
  grad[5] = 1;  // the scale of m and of v
  std::vector<double> sum_m(kBlockElems), sum_v(kBlockElems);
  for (int draw = 0; draw < kDraws; ++draw) {
    const VariantState state = encoded(grad, uint64_t(draw));
    ASSERT_EQ(state.m_scale[0], 1.0f);
    ASSERT_EQ(state.v_scale[0], 1.0f);
    for (size_t i = 0; i < kBlockElems; ++i) {
      const double x = std::fabs(grad[i]);
      ASSERT_LE(std::fabs(state.m(i) - grad[i]), step_of_m(x) + 1e-6) << i;
      ASSERT_LE(std::fabs(state.v(i) - x * x), step_of_v(x * x) + 1e-6) << i;
      sum_m[i] += state.m(i);
      sum_v[i] += state.v(i);
    }
  }
  for (size_t i = 0; i < kBlockElems; ++i) {
    // Half a step is the largest standard deviation of one draw; five of the mean's.
    const double x = std::fabs(grad[i]), sigma = 0.5 / std::sqrt(double(kDraws));
    EXPECT_NEAR(sum_m[i] / kDraws, grad[i], 5 * sigma * step_of_m(x) + 1e-6) << i;
    EXPECT_NEAR(sum_v[i] / kDraws, x * x, 5 * sigma * step_of_v(x * x) + 1e-6) << i;
  }
}

TEST(Blocks, DoNotMakeASmallSecondMomentZero) {
  const VariantState state = encoded({1.0f, 1e-6f, 0.0f, -1e-12f}, 3);
  EXPECT_EQ(state.v8, (std::vector<uint8_t>{255, 1, 0, 1}));
}

TEST(Blocks, KeepTheirLargestValuesExactly) {
  const std::vector<float> grad = {0.25f, -3.0f, 1.0f};
  const VariantState state = encoded(grad, 1);
  EXPECT_EQ(state.m(1), -3.0f);
  EXPECT_EQ(state.v(1), 9.0f);
}

// Gradients of two decades in every block: the weights end within a few percent of the way that fp32 state
// makes them go.
TEST(Blocks, FollowFp32StateOverManySteps) {
  constexpr size_t kCount = 5 * kBlockElems + 17;
  const Format plain{}, blocks{.weights = WeightFormat::split24, .moments = MomentFormat::q8};
  const Options options{.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.01, .seed = 6};
  Random random(8);
  const std::vector<float> start(kCount, 0.5f);
  std::vector<float> scale(kCount), grad(kCount);
  for (float& s : scale) s = float(std::pow(10.0, random.uniform(-4, -2)));
  VariantState a(plain, start), b(blocks, start);
  for (uint64_t t = 1; t <= 300; ++t) {
    for (size_t i = 0; i < kCount; ++i) grad[i] = scale[i] * float(random.uniform(-1, 2));
    update(plain, a.span(gradient_of(grad)), make_scalars(options, t, 1.0));
    update(blocks, b.span(gradient_of(grad)), make_scalars(options, t, 1.0));
  }
  double moved = 0, apart = 0;
  for (size_t i = 0; i < kCount; ++i) {
    moved += std::fabs(a.weight(i) - start[i]);
    apart += std::fabs(a.weight(i) - b.weight(i));
  }
  EXPECT_GT(moved / double(kCount), 0.05);
  EXPECT_LT(apart / moved, 0.05);
}

}  // namespace
}  // namespace headrace::adam::test
