// SPDX-License-Identifier: Apache-2.0
// Every offered format gives one result, bit for bit: whatever the instruction set, the alignment, the cuts
// of the span, the list it is part of and the threads.
#include <oneapi/tbb/global_control.h>

#include <algorithm>

#include "tests/cpu_adam/variant_state.h"

namespace headrace::adam::test {
namespace {

struct Data {
  std::vector<float> w, m, v, grad;
  std::vector<bf16> grad16;
};

/// One in eight values is any bit pattern when `wild`.
Data random_data(size_t count, uint64_t seed, bool wild = false) {
  Random random(seed);
  const auto value = [&](double low, double high) {
    return wild && random.next() % 8 == 0 ? random.bits() : float(random.uniform(low, high));
  };
  Data data;
  for (size_t i = 0; i < count; ++i) {
    data.w.push_back(value(-0.1, 0.1));
    data.m.push_back(value(-1e-3, 1e-3));
    data.v.push_back(value(0, 1e-5));
    data.grad.push_back(value(-1e-2, 1e-2));
    data.grad16.push_back(to_bf16(data.grad.back()));
  }
  return data;
}

class VariantBits : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    scalars_ = make_scalars({.rule = GetParam().rule,
                             .lr = 3e-4,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8,
                             .weight_decay = 0.1,
                             .seed = 5},
                            3, 0.7);
  }
  VariantState made(const Data& data) { return {GetParam(), data.w, data.m, data.v}; }
  /// By one scalar call.
  VariantState expected(const Data& data, Gradient grad, uint64_t first = 0) {
    VariantState state = made(data);
    update(Isa::scalar, GetParam(), state.span(grad, first), scalars_);
    return state;
  }
  /// What a span may be cut at.
  static size_t grain() { return GetParam().moments == MomentFormat::q8 ? kBlockElems : 1; }
  template <class Check>
  static void for_each_gradient(const Data& data, const Check& check) {
    check(gradient_of(data.grad));
    check(gradient_of(data.grad16));
  }
  /// On the first `count` elements; the others stay as they were.
  void expect_isas_agree(const VariantState& state, const Data& data, size_t count) {
    for_each_gradient(data, [&](Gradient grad) {
      VariantState want = state;
      update(Isa::scalar, GetParam(), want.span(grad).part(GetParam(), 0, count), scalars_);
      for (const Isa isa : supported_isas()) {
        if (isa == Isa::scalar) continue;
        VariantState got = state;
        update(isa, GetParam(), got.span(grad).part(GetParam(), 0, count), scalars_);
        ASSERT_TRUE(same_state(got, want)) << count << " elements, " << isa_name(isa);
      }
    });
  }

  StepScalars scalars_{};
};

INSTANTIATE_TEST_SUITE_P(Formats, VariantBits, testing::ValuesIn(offered_formats()),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(VariantBits, AreTheSameOnEveryInstructionSetForEverySize) {
  for (const bool wild : {false, true}) {
    const Data data = random_data(290, wild, wild);
    const VariantState state = made(data);
    for (size_t count = 0; count <= 257; ++count) {
      expect_isas_agree(state, data, count);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
  const Data data = random_data(1'000'003, 11);
  expect_isas_agree(made(data), data, 1'000'003);
}

TEST_P(VariantBits, NeitherDependOnAlignmentNorTouchNeighbours) {
  constexpr size_t kElems = 6 * 64 + 16;
  const Data data = random_data(kElems, 21);
  const std::vector<size_t> counts = grain() == 1 ? std::vector<size_t>{1, 7, 16, 33, 47, 200}
                                                  : std::vector<size_t>{kBlockElems, 2 * kBlockElems};
  for_each_gradient(data, [&](Gradient grad) {
    const VariantState whole = expected(data, grad), before = made(data);
    for (const Isa isa : supported_isas()) {
      for (size_t begin = 0; begin < 33 * grain() && begin <= kBlockElems; begin += grain()) {
        for (const size_t count : counts) {
          VariantState state = before;
          update(isa, GetParam(), state.span(grad).part(GetParam(), begin, count), scalars_);
          for (size_t i = 0; i < kElems; ++i) {
            const bool inside = i >= begin && i < begin + count;
            ASSERT_TRUE(same_element(state, inside ? whole : before, i))
                << isa_name(isa) << ", part of " << count << " at " << begin << ", element " << i;
          }
        }
      }
    }
  });
}

TEST_P(VariantBits, AreTheSameForAnySplitOfASpan) {
  const Data data = random_data(100'007, 31);
  Random random(32);
  for_each_gradient(data, [&](Gradient grad) {
    const VariantState want = expected(data, grad);
    for (const Isa isa : supported_isas()) {
      VariantState state = made(data);
      for (size_t begin = 0; begin < state.size();) {
        const size_t wanted = (1 + random.below(random.next() % 2 ? 100 : 60'000)) * grain();
        const size_t count = std::min(wanted, state.size() - begin);
        update(isa, GetParam(), state.span(grad).part(GetParam(), begin, count), scalars_);
        begin += count;
      }
      ASSERT_TRUE(same_state(state, want)) << isa_name(isa);
    }
  });
}

TEST_P(VariantBits, AreTheSameForAnyListOfSpansAndAnyNumberOfThreads) {
  const tbb::global_control eight(tbb::global_control::max_allowed_parallelism, 8);
  const Data data = random_data(300'007, 41);
  Random random(42);
  for_each_gradient(data, [&](Gradient grad) {
    const VariantState want = expected(data, grad);
    for (const int threads : {1, 2, 3, 7}) {
      VariantState state = made(data);
      std::vector<ScaledSpan> list;
      for (size_t begin = 0; begin < state.size();) {
        const size_t wanted = random.below(random.next() % 2 ? 100 : 90'000) * grain();
        const size_t count = std::min(wanted, state.size() - begin);
        list.push_back({state.span(grad).part(GetParam(), begin, count), &scalars_});
        begin += count;
      }
      Workers(threads).update(GetParam(), list);
      ASSERT_TRUE(same_state(state, want)) << threads;
    }
  });
}

// Where the upper half of an element's number changes, so does the key of the random bits.
TEST_P(VariantBits, AreTheSameAcrossTheNumbersOfAKey) {
  const Data data = random_data(200, 51);
  const size_t before = GetParam().moments == MomentFormat::q8 ? kBlockElems : 37;
  const uint64_t first = (uint64_t(1) << 32) - before;
  for_each_gradient(data, [&](Gradient grad) {
    const VariantState want = expected(data, grad, first);
    for (const Isa isa : supported_isas()) {
      VariantState state = made(data);
      const Span span = state.span(grad, first);
      update(isa, GetParam(), span.part(GetParam(), 0, before), scalars_);
      update(isa, GetParam(), span.part(GetParam(), before, 200 - before), scalars_);
      ASSERT_TRUE(same_state(state, want)) << isa_name(isa);
    }
  });
}

TEST_P(VariantBits, APaddingOfZerosStaysExactlyZero) {
  const std::vector<float> zero(77);
  const std::vector<bf16> zero16(77);
  for (const Isa isa : supported_isas()) {
    VariantState state(GetParam(), zero);
    for (int i = 0; i < 5; ++i) {
      update(isa, GetParam(), state.span(gradient_of(zero)), scalars_);
      update(isa, GetParam(), state.span(gradient_of(zero16)), scalars_);
    }
    for (size_t i = 0; i < 77; ++i) {
      ASSERT_TRUE(same(state.weight(i), 0.0f) && same(state.m(i), 0.0f) && same(state.v(i), 0.0f)) << i;
    }
  }
}

TEST(Formats, AreOfferedWhereTheyMakeSense) {
  EXPECT_EQ(offered_formats().size(), 3u * (3 + 3 + 2 + 1) + 2);
  EXPECT_TRUE(offered({Rule::lion, WeightFormat::split, MomentFormat::bf16_m}));
  EXPECT_FALSE(offered({Rule::lion, WeightFormat::split, MomentFormat::bf16}));
  EXPECT_FALSE(offered({Rule::adagrad, WeightFormat::fp32, MomentFormat::bf16_m}));
}

// Read and write w or hi and lo, m, v; read the gradient; write the copy.
TEST(Formats, MoveTheBytesThatTheirNamesSay) {
  EXPECT_EQ(bytes_moved({}, DType::f32), 28);
  EXPECT_EQ(bytes_moved({.weights = WeightFormat::fp32_copy}, DType::bf16), 28);
  EXPECT_EQ(bytes_moved({.weights = WeightFormat::split}, DType::bf16), 26);
  EXPECT_EQ(bytes_moved({.weights = WeightFormat::fp32_copy, .moments = MomentFormat::bf16_m}, DType::bf16),
            24);
  EXPECT_EQ(bytes_moved({.weights = WeightFormat::split, .moments = MomentFormat::bf16}, DType::bf16), 18);
  EXPECT_EQ(bytes_moved({.weights = WeightFormat::split24, .moments = MomentFormat::q8}, DType::bf16),
            2 + 2 * (3 + 1 + 1 + 2 * 4.0 / 64));
  EXPECT_EQ(bytes_moved({.rule = Rule::lion, .weights = WeightFormat::split}, DType::bf16), 18);
}

TEST(FormatsDeathTest, OneThatIsNotOfferedAborts) {
  std::vector<float> four(4);
  VariantState state({.rule = Rule::adagrad, .moments = MomentFormat::bf16}, four);
  EXPECT_DEATH(update(state.format, state.span(gradient_of(four)), make_scalars({}, 1, 1.0)), "this rule");
}

}  // namespace
}  // namespace headrace::adam::test
