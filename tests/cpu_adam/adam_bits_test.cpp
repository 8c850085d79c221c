// SPDX-License-Identifier: Apache-2.0
// One result, bit for bit: whatever the instruction set, the alignment, the cuts of the span and the threads.
// The yardstick is one scalar call, which itself is compared with the roundings that headrace/adam.h
// documents.
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <limits>
#include <span>

#include "tests/cpu_adam/adam_state.h"

namespace headrace::adam::test {
namespace {

const StepScalars kScalars = make_scalars(
    {.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}, /*t=*/3, /*grad_scale=*/0.7);

struct Data {
  State state;
  std::vector<float> grad;
  std::vector<bf16> grad16;
};

Data ordinary(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> w(count), m(count), v(count), grad(count);
  std::vector<bf16> grad16(count);
  for (size_t i = 0; i < count; ++i) {
    w[i] = float(random.uniform(-0.1, 0.1));
    m[i] = float(random.uniform(-1e-3, 1e-3));
    v[i] = float(random.uniform(0, 1e-5));
    grad[i] = float(random.uniform(-1e-2, 1e-2));
    grad16[i] = to_bf16(grad[i]);
  }
  return {State(w, m, v), grad, grad16};
}

/// Any bit pattern: NaNs, infinities, denormals and overflows in every operand.
Data wild(size_t count, uint64_t seed) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kSpecial[] = {0.0f,   -0.0f,   kInf,   -kInf,          kNan,
                                1e-45f, -1e-45f, 1e-40f, 1.1754944e-38f, 3.4028235e38f};
  Random random(seed);
  const auto value = [&] {
    return random.next() % 3 ? random.bits() : kSpecial[random.below(std::size(kSpecial))];
  };
  std::vector<float> w(count), m(count), v(count), grad(count);
  std::vector<bf16> grad16(count);
  for (size_t i = 0; i < count; ++i) {
    w[i] = value();
    m[i] = value();
    v[i] = random.next() % 2 ? std::abs(value()) : value();
    grad[i] = value();
    grad16[i] = bf16(uint16_t(std::bit_cast<uint32_t>(value()) >> 16));
  }
  return {State(w, m, v), grad, grad16};
}

/// Denormal moments and gradients with weights near the smallest normal number.
Data tiny(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> w(count), m(count), v(count), grad(count);
  std::vector<bf16> grad16(count);
  for (size_t i = 0; i < count; ++i) {
    w[i] = float(random.uniform(-2e-38, 2e-38));
    m[i] = float(random.uniform(-1e-39, 1e-39));
    v[i] = float(random.uniform(0, 1e-42));
    grad[i] = float(random.uniform(-1e-20, 1e-20));
    grad16[i] = to_bf16(grad[i]);
  }
  return {State(w, m, v), grad, grad16};
}

void expect_same(const State& a, const State& b) {
  ASSERT_TRUE(same_bits(a.w, b.w));
  ASSERT_TRUE(same_bits(a.merged(), b.merged()));
  ASSERT_TRUE(same_bits(a.m, b.m));
  ASSERT_TRUE(same_bits(a.v, b.v));
}

template <class T>
std::span<T> cut(std::vector<T>& values, size_t begin, size_t count) {
  return std::span<T>(values).subspan(begin, count);
}

enum class Layout { fp32, split };

void run_part(Isa isa, Layout layout, State& s, Gradient grad, size_t begin, size_t count) {
  const Gradient part = grad.from(begin);
  if (layout == Layout::fp32) {
    adamw(isa, cut(s.w, begin, count), cut(s.m, begin, count), cut(s.v, begin, count), part, kScalars);
  } else {
    adamw(isa, cut(s.hi, begin, count), cut(s.lo, begin, count), cut(s.m, begin, count),
          cut(s.v, begin, count), part, kScalars);
  }
}

/// Calls check(layout, gradient) for the four combinations.
template <class Check>
void for_each_kind(const Data& data, const Check& check) {
  for (const Layout layout : {Layout::fp32, Layout::split}) {
    check(layout, gradient_of(data.grad));
    check(layout, gradient_of(data.grad16));
  }
}

void expect_isas_agree(const Data& data) {
  for_each_kind(data, [&](Layout layout, Gradient grad) {
    State expected = data.state;
    run_part(Isa::scalar, layout, expected, grad, 0, expected.w.size());
    for (const Isa isa : supported_isas()) {
      SCOPED_TRACE(isa_name(isa));
      State actual = data.state;
      run_part(isa, layout, actual, grad, 0, actual.w.size());
      expect_same(actual, expected);
    }
  });
}

/// The roundings of headrace/adam.h, spelled out.
void documented_update(float& w, float& m, float& v, float grad, const StepScalars& s) {
  const float g = grad * s.grad_scale;
  m = std::fma(s.one_minus_beta1, g - m, m);
  v = std::fma(s.one_minus_beta2, std::fma(g, g, -v), v);
  const float q = m / std::fma(std::sqrt(v), s.inv_sqrt_bias2, s.eps);
  w = w + std::fma(q, s.neg_step_size, w * s.neg_lr_decay);
}

TEST(Bits, AreThoseOfTheDocumentedRoundings) {
  for (const Data& data : {ordinary(20'003, 1), wild(20'003, 2), tiny(20'003, 3)}) {
    State expected = data.state, actual = data.state;
    for (size_t i = 0; i < data.grad.size(); ++i) {
      documented_update(expected.w[i], expected.m[i], expected.v[i], data.grad[i], kScalars);
    }
    run_part(Isa::scalar, Layout::fp32, actual, gradient_of(data.grad), 0, data.grad.size());
    expect_same(actual, expected);
  }
}

TEST(Bits, AreTheSameOnEveryInstructionSetForEverySize) {
  for (size_t count = 0; count <= 257; ++count) {
    expect_isas_agree(ordinary(count, count));
    ASSERT_FALSE(HasFatalFailure()) << count;
  }
  expect_isas_agree(ordinary(1'000'003, 11));
}

TEST(Bits, AreTheSameForNonFiniteAndDenormalOperands) {
  for (size_t count = 0; count <= 257; ++count) {
    expect_isas_agree(wild(count, 1000 + count));
    expect_isas_agree(tiny(count, 2000 + count));
    ASSERT_FALSE(HasFatalFailure()) << count;
  }
  expect_isas_agree(wild(200'003, 12));
  expect_isas_agree(tiny(20'003, 13));
}

// Only what is wholly inside a part may change, so neighbours catch a tail that writes too far.
TEST(Bits, NeitherDependOnAlignmentNorTouchNeighbours) {
  const Data data = ordinary(300, 21);
  for_each_kind(data, [&](Layout layout, Gradient grad) {
    State whole = data.state;
    run_part(Isa::scalar, layout, whole, grad, 0, 300);
    for (const Isa isa : supported_isas()) {
      SCOPED_TRACE(isa_name(isa));
      for (size_t begin = 0; begin < 33; ++begin) {
        for (const size_t count : {size_t{1}, size_t{7}, size_t{15}, size_t{16}, size_t{47}, size_t{200}}) {
          State actual = data.state;
          run_part(isa, layout, actual, grad, begin, count);
          for (size_t i = 0; i < 300; ++i) {
            const State& source = i >= begin && i < begin + count ? whole : data.state;
            ASSERT_TRUE(same(actual.w[i], source.w[i]) && same(actual.m[i], source.m[i]) &&
                        same(actual.v[i], source.v[i]) && actual.hi[i] == source.hi[i] &&
                        actual.lo[i] == source.lo[i])
                << "part of " << count << " at " << begin << ", element " << i;
          }
        }
      }
    }
  });
}

TEST(Bits, AreTheSameForAnySplitOfASpan) {
  constexpr size_t kCount = 1'000'003;
  const Data data = ordinary(kCount, 31);
  Random random(32);
  for_each_kind(data, [&](Layout layout, Gradient grad) {
    State expected = data.state;
    run_part(Isa::scalar, layout, expected, grad, 0, kCount);
    for (const Isa isa : supported_isas()) {
      SCOPED_TRACE(isa_name(isa));
      State actual = data.state;
      for (size_t begin = 0; begin < kCount;) {
        const size_t count = std::min(1 + random.below(random.next() % 2 ? 100 : 100'000), kCount - begin);
        run_part(isa, layout, actual, grad, begin, count);
        begin += count;
      }
      expect_same(actual, expected);
    }
  });
}

/// Lets a test have more threads than the machine has CPUs.
class WorkersTest : public ::testing::Test {
  tbb::global_control eight_threads_{tbb::global_control::max_allowed_parallelism, 8};
};

TEST_F(WorkersTest, GiveTheBitsOfOneCallForAnyNumberOfThreads) {
  for (const size_t count : {size_t{0}, size_t{1}, kTileElems, kTileElems + 1, size_t{1'000'003}}) {
    const Data data = ordinary(count, 41);
    for_each_kind(data, [&](Layout layout, Gradient grad) {
      State expected = data.state;
      run_part(Isa::scalar, layout, expected, grad, 0, count);
      for (const int threads : {1, 2, 3, 7, 0}) {
        State actual = data.state;
        Workers workers(threads);
        if (layout == Layout::fp32) {
          workers.adamw(actual.w, actual.m, actual.v, grad, kScalars);
        } else {
          workers.adamw(actual.hi, actual.lo, actual.m, actual.v, grad, kScalars);
        }
        SCOPED_TRACE(threads);
        expect_same(actual, expected);
      }
    });
  }
}

// 260 tiles and a piece are more than one batch of tile sums.
TEST_F(WorkersTest, SumSquaresLikeOneThread) {
  Random random(42);
  std::vector<bf16> grad(260 * kTileElems + 5);
  for (bf16& g : grad) g = to_bf16(float(random.uniform(-1, 1)));
  for (const size_t count : {size_t{0}, size_t{1}, kTileElems, 2 * kTileElems + 1, grad.size()}) {
    const SumSquares expected = sum_squares(Isa::scalar, gradient_of(grad), count);
    for (const int threads : {1, 2, 3, 7}) {
      EXPECT_EQ(Workers(threads).sum_squares(gradient_of(grad), count).sum, expected.sum) << count;
    }
  }
  grad.back() = to_bf16(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(Workers(3).sum_squares(gradient_of(grad), grad.size()).finite);
  EXPECT_TRUE(Workers(3).sum_squares(gradient_of(grad), grad.size() - 1).finite);
}

TEST_F(WorkersTest, HaveTheThreadsAskedForUpToTheLimitOfTheProcess) {
  EXPECT_EQ(Workers(1).threads(), 1);
  EXPECT_EQ(Workers(3).threads(), 3);
  EXPECT_EQ(Workers(100).threads(), 8);
  EXPECT_GE(Workers(0).threads(), 1);
}

// A bf16 gradient and the same numbers as fp32 are one gradient.
TEST(Bits, AreTheSameForBothFormatsOfARepresentableGradient) {
  Data data = ordinary(1003, 51);
  for (size_t i = 0; i < data.grad.size(); ++i) data.grad[i] = to_float(data.grad16[i]);
  for (const Isa isa : supported_isas()) {
    State a = data.state, b = data.state;
    run_part(isa, Layout::fp32, a, gradient_of(data.grad), 0, 1003);
    run_part(isa, Layout::fp32, b, gradient_of(data.grad16), 0, 1003);
    expect_same(a, b);
  }
}

}  // namespace
}  // namespace headrace::adam::test
