// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "model/init.h"
#include "model_cases.h"

namespace headrace::test {
namespace {

constexpr SegmentInit kNormal{SegmentInit::Kind::normal, 0.02};

std::vector<float> values(uint64_t seed, std::string_view unit, std::string_view segment, int64_t first,
                          size_t count) {
  std::vector<float> out(count);
  initialize_segment(kNormal, seed, unit, segment, first, out);
  return out;
}

TEST(Init, AnyCutGivesTheSameValues) {
  const std::vector<float> whole = values(1, "layer.0", "w", 0, 100);
  for (size_t first = 0; first < whole.size(); ++first)
    for (const size_t count : {size_t(1), size_t(2), size_t(3), size_t(8), whole.size() - first}) {
      if (first + count > whole.size()) continue;
      const std::vector<float> part = values(1, "layer.0", "w", int64_t(first), count);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + int64_t(first)))
          << first << " " << count;
    }
  EXPECT_TRUE(values(1, "layer.0", "w", 5, 0).empty());
}

TEST(Init, PositionsBeyond32BitsAreTheirOwn) {
  EXPECT_NE(values(1, "u", "w", 0, 8), values(1, "u", "w", int64_t(1) << 32, 8));
  EXPECT_NE(values(1, "u", "w", 0, 8), values(1, "u", "w", int64_t(1) << 40, 8));
}

TEST(Init, SeedAndBothNamesMatter) {
  const std::vector<float> base = values(1, "layer.1", "w", 0, 8);
  EXPECT_NE(base, values(2, "layer.1", "w", 0, 8));
  EXPECT_NE(base, values(1, "layer.2", "w", 0, 8));
  EXPECT_NE(base, values(1, "layer.1", "v", 0, 8));
  EXPECT_NE(values(1, "ab", "c", 0, 8), values(1, "a", "bc", 0, 8));
  EXPECT_EQ(base, values(1, "layer.1", "w", 0, 8));
}

// 200,000 numbers: the standard errors of mean, variance, kurtosis and neighbours' correlation are 0.0022,
// 0.0032, 0.011 and 0.0022 in units of the deviation; five of each are allowed.
TEST(Init, NumbersAreNormal) {
  const std::vector<float> sample = values(42, "embed", "wte.weight", 0, 200'000);
  const double n = double(sample.size());
  double sum = 0, square = 0, fourth = 0, neighbours = 0, within = 0;
  for (size_t i = 0; i < sample.size(); ++i) {
    const double z = sample[i] / 0.02;
    sum += z;
    square += z * z;
    fourth += z * z * z * z;
    within += std::abs(z) < 1;
    if (i > 0) neighbours += z * sample[i - 1] / 0.02;
  }
  EXPECT_NEAR(sum / n, 0, 0.011);
  EXPECT_NEAR(square / n, 1, 0.016);
  EXPECT_NEAR(fourth / n, 3, 0.11);
  EXPECT_NEAR(neighbours / n, 0, 0.011);
  EXPECT_NEAR(within / n, std::erf(1 / std::numbers::sqrt2), 0.006);
}

double deviation(const Model& model, UnitId unit, size_t segment) {
  std::vector<float> sample(20'000);
  model.initialize(unit, segment, 3, 0, sample);
  double square = 0;
  for (const float value : sample) square += double(value) * value / double(sample.size());
  return std::sqrt(square);
}

TEST(Init, ResidualProjectionsAreScaledNormsAreOneAndBiasesZero) {
  ModelConfig config = tiny_gpt2(false);
  config.layers = 8;
  const auto model = make_model(config, DType::f32, DeviceKind::host);
  const UnitSpec& layer = model->units()[1];
  for (size_t s = 0; s < layer.segments.size(); ++s) {
    const std::string& name = layer.segments[s].name;
    std::vector<float> one(1);
    model->initialize(UnitId(1), s, 3, 7, one);
    if (name == "attn.out.weight" || name == "mlp.down.weight")
      EXPECT_NEAR(deviation(*model, UnitId(1), s), 0.02 / 4, 0.0002) << name;  // 1 / sqrt(2 * 8)
    else if (name.ends_with("norm.weight"))
      EXPECT_EQ(one[0], 1.0f) << name;
    else if (name.ends_with(".bias"))
      EXPECT_EQ(one[0], 0.0f) << name;
    else
      EXPECT_NEAR(deviation(*model, UnitId(1), s), 0.02, 0.0008) << name;
  }
  std::vector<float> first(4), second(4);
  model->initialize(UnitId(1), 2, 3, 0, first);
  model->initialize(UnitId(2), 2, 3, 0, second);
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace headrace::test
