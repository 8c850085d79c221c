// SPDX-License-Identifier: Apache-2.0
// Sum of squares and the clip coefficient.
#include <limits>

#include "tests/cpu_adam/adam_state.h"

namespace headrace::adam::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(SumSquares, OfSmallIntegersIsExact) {
  // 1^2 + ... + n^2 = n (n + 1) (2 n + 1) / 6; every partial sum is an integer below 2^53.
  for (size_t n = 0; n <= 257; ++n) {
    std::vector<float> grad(n);
    std::vector<bf16> grad16(n);
    for (size_t i = 0; i < n; ++i) {
      grad[i] = float(i + 1) * (i % 2 ? -1.0f : 1.0f);
      grad16[i] = to_bf16(grad[i]);
    }
    const double expected = double(n * (n + 1) * (2 * n + 1) / 6);
    for (const Isa isa : supported_isas()) {
      EXPECT_EQ(sum_squares(isa, gradient_of(grad), n).sum, expected) << n << isa_name(isa);
      if (n > 256) continue;  // 257 needs nine bits, bf16 has eight
      EXPECT_EQ(sum_squares(isa, gradient_of(grad16), n).sum, expected) << n << isa_name(isa);
    }
  }
}

/// The association of headrace/adam.h, spelled out.
double documented_sum(const std::vector<float>& grad) {
  double sum = 0;
  for (size_t tile = 0; tile < grad.size(); tile += 65536) {
    double lanes[16] = {};
    for (size_t i = 0; i < 65536 && tile + i < grad.size(); ++i) {
      lanes[i % 16] += double(grad[tile + i]) * double(grad[tile + i]);
    }
    for (const size_t half : {8, 4, 2, 1}) {
      for (size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
    }
    sum += lanes[0];
  }
  return sum;
}

TEST(SumSquares, HasTheDocumentedAssociationOnEveryInstructionSet) {
  Random random(3);
  std::vector<float> grad(1'000'003);
  for (float& g : grad) g = float(random.uniform(-1, 1) * std::pow(10.0, random.uniform(-8, 8)));
  for (const size_t count : {size_t{1}, size_t{65535}, size_t{65536}, size_t{65537}, grad.size()}) {
    const double expected = documented_sum({grad.begin(), grad.begin() + long(count)});
    for (const Isa isa : supported_isas()) {
      EXPECT_EQ(sum_squares(isa, gradient_of(grad), count).sum, expected) << count << isa_name(isa);
    }
  }
}

TEST(SumSquares, ReportsOneNonFiniteElementAnywhere) {
  for (const Isa isa : supported_isas()) {
    for (size_t count : {1, 15, 16, 17, 70'000}) {
      for (const size_t at : {size_t{0}, count / 2, count - 1}) {
        for (const float bad : {kInf, -kInf, kNan}) {
          std::vector<float> grad(count, 1e-3f);
          std::vector<bf16> grad16(count, to_bf16(1e-3f));
          EXPECT_TRUE(sum_squares(isa, gradient_of(grad), count).finite);
          EXPECT_TRUE(sum_squares(isa, gradient_of(grad16), count).finite);
          grad[at] = bad;
          grad16[at] = to_bf16(bad);
          EXPECT_FALSE(sum_squares(isa, gradient_of(grad), count).finite) << count << " at " << at;
          EXPECT_FALSE(sum_squares(isa, gradient_of(grad16), count).finite) << count << " at " << at;
        }
      }
    }
  }
}

TEST(SumSquares, OfTheLargestAndSmallestNumbersNeitherOverflowsNorVanishes) {
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kMin = std::numeric_limits<float>::denorm_min();
  const std::vector<float> large(1000, kMax), small(1024, kMin);
  EXPECT_TRUE(sum_squares(gradient_of(large), 1000).finite);
  EXPECT_NEAR(sum_squares(gradient_of(large), 1000).sum / (double(kMax) * kMax), 1000, 1e-9);
  EXPECT_EQ(sum_squares(gradient_of(small), 1024).sum, 0x1p-288);  // 2^10 x (2^-149)^2
}

TEST(ClipCoefficient, ScalesOnlyANormAboveTheLimit) {
  EXPECT_EQ(clip_coefficient(5.0, 1.0), 0.2);
  EXPECT_EQ(clip_coefficient(1.0, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(0.0, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(1e9, 0.0), 1.0);
}

}  // namespace
}  // namespace headrace::adam::test
