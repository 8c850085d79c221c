// SPDX-License-Identifier: Apache-2.0
// Faults that trainers in the field really had: what a mean is taken over, what counts, what a bad gradient
// does.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/train/step_rig.h"

namespace headrace {
namespace {

using test::RigOptions;
using test::StepRig;

constexpr int64_t kSeq = 6;

RigOptions rig_options(int64_t micro_batch, int64_t grad_accum) {
  return {.model = {.family = Family::llama,
                    .layers = 2,
                    .hidden = 32,
                    .heads = 4,
                    .kv_heads = 2,
                    .ffn = 48,
                    .vocab = 20,
                    .max_seq = kSeq},
          .shape = {.micro_batch = micro_batch, .seq_len = kSeq, .grad_accum = grad_accum},
          .engine = test::roomy_engine(DType::f32, {Tier::device, Tier::device, Tier::device, {}}, "")};
}

Batch rows(const std::vector<std::vector<int32_t>>& tokens, const std::vector<std::vector<int32_t>>& labels) {
  Batch batch;
  batch.resize(int64_t(tokens.size()), kSeq);
  for (size_t r = 0; r < tokens.size(); ++r) fill_row(batch, int64_t(r), tokens[r], labels[r]);
  return batch;
}

/// Adam is blind to a gradient's scale, so that these tests use plain numbers where a wrong scale shows: m
/// after one step is (1 - beta1) g.
std::vector<float> first_moment(StepRig& rig) {
  std::vector<float> m;
  for (uint32_t u = 0; u < rig.engine.units().size(); ++u) {
    rig.engine.visit_state(UnitId{u}, StateAccess::read, [&](const StateTile& tile) {
      const auto* const from = static_cast<const float*>(tile.arrays.m);
      m.insert(m.end(), from, from + tile.elems);
    });
  }
  return m;
}

StepOptions plain(uint64_t t) {
  return {.adam = {.lr = 1e-3, .weight_decay = 0}, .grad_clip = 0, .t = t};
}

const std::vector<std::vector<int32_t>> kTokens = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}};
// Row 0 has one target that counts, row 1 five.
const std::vector<std::vector<int32_t>> kLabels = {{-100, -100, -100, 4, -100, -100}, {7, 8, 9, 10, 11, 12}};

TEST(Accumulation, IsAMeanOverTokensAndNotOfMeans) {
  StepRig together(rig_options(2, 1)), apart(rig_options(1, 2));
  const std::vector<Batch> one = {rows(kTokens, kLabels)};
  const std::vector<Batch> two = {rows({kTokens[0]}, {kLabels[0]}), rows({kTokens[1]}, {kLabels[1]})};
  const StepOutcome a = train_step(together.context(), one, plain(1));
  const StepOutcome b = train_step(apart.context(), two, plain(1));
  EXPECT_EQ(a.counted, 6);
  EXPECT_EQ(b.counted, 6);
  EXPECT_NEAR(a.loss, b.loss, 1e-6 * a.loss);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5 * a.grad_norm);
  const auto ma = first_moment(together), mb = first_moment(apart);
  for (size_t i = 0; i < ma.size(); ++i) ASSERT_NEAR(ma[i], mb[i], 1e-7 + 1e-4 * std::abs(ma[i])) << i;
}

TEST(Accumulation, TheMeanWeighsEveryTokenAlike) {
  // The loss of both rows is (1 * loss(row 0) + 5 * loss(row 1)) / 6.
  StepRig rig(rig_options(1, 1));
  const std::vector<Batch> first = {rows({kTokens[0]}, {kLabels[0]})},
                           second = {rows({kTokens[1]}, {kLabels[1]})};
  const double sum0 = evaluate(rig.context(), first), sum1 = evaluate(rig.context(), second);
  StepRig both(rig_options(2, 1));
  const std::vector<Batch> batch = {rows(kTokens, kLabels)};
  EXPECT_NEAR(train_step(both.context(), batch, plain(1)).loss, (sum0 + sum1) / 6, 1e-6);
}

TEST(Labels, PaddingNeverCounts) {
  // [1,2,3] padded to 6 has the loss of the unpadded row; 0 is a real token here and the padding's id as
  // well.
  RigOptions short_options = rig_options(1, 1);
  short_options.shape.seq_len = 3;
  StepRig unpadded(short_options), padded(rig_options(1, 1));
  Batch three;
  three.resize(1, 3);
  fill_row(three, 0, std::vector<int32_t>{1, 2, 0}, std::vector<int32_t>{1, 2, 0});
  const std::vector<Batch> a = {three}, b = {rows({{1, 2, 0}}, {{1, 2, 0}})};
  const StepOutcome x = train_step(unpadded.context(), a, plain(1)),
                    y = train_step(padded.context(), b, plain(1));
  EXPECT_EQ(x.counted, 2);  // 1>2 and 2>0: the end token stays a target
  EXPECT_EQ(y.counted, 2);
  EXPECT_NEAR(x.loss, y.loss, 1e-6 * x.loss);
  EXPECT_NEAR(x.grad_norm, y.grad_norm, 1e-5 * x.grad_norm);
}

TEST(Labels, AllIgnoredUpdatesNothing) {
  StepRig rig(rig_options(2, 1));
  const std::vector<Batch> some = {rows(kTokens, kLabels)};
  train_step(rig.context(), some, plain(1));
  const auto before = rig.state();
  const std::vector<std::vector<int32_t>> ignored(2, std::vector<int32_t>(kSeq, Batch::kNoLabel));
  const std::vector<Batch> none = {rows(kTokens, ignored)};
  const StepOutcome outcome = train_step(rig.context(), none, plain(2));
  EXPECT_EQ(outcome.loss, 0.0);
  EXPECT_EQ(outcome.counted, 0);
  EXPECT_TRUE(outcome.skipped);
  EXPECT_TRUE(before == rig.state());
}

TEST(Labels, AMicroBatchWithoutTargetsChangesNothing) {
  StepRig one(rig_options(1, 1)), two(rig_options(1, 2));
  const Batch real = rows({kTokens[1]}, {kLabels[1]});
  const Batch ignored = rows({kTokens[0]}, {std::vector<int32_t>(kSeq, Batch::kNoLabel)});
  const std::vector<Batch> a = {real}, b = {real, ignored};
  const StepOutcome x = train_step(one.context(), a, plain(1)), y = train_step(two.context(), b, plain(1));
  EXPECT_EQ(x.loss, y.loss);
  EXPECT_EQ(x.grad_norm, y.grad_norm);
  EXPECT_TRUE(one.state() == two.state());
}

TEST(Overflow, ANonFiniteWeightSkipsTheStepAndLeavesEveryBit) {
  StepRig rig(rig_options(2, 1));
  rig.engine.visit_state(UnitId{1}, StateAccess::modify, [](const StateTile& tile) {
    reinterpret_cast<float*>(tile.weights)[tile.elems / 2] = std::numeric_limits<float>::infinity();
  });
  const auto before = rig.state();
  const std::vector<Batch> batch = {rows(kTokens, kLabels)};
  const StepOutcome outcome = train_step(rig.context(), batch, plain(1));
  EXPECT_TRUE(outcome.skipped);
  EXPECT_FALSE(std::isfinite(outcome.grad_norm));
  EXPECT_TRUE(before == rig.state());
}

TEST(Clipping, ReportsTheNormBeforeAndScalesToTheMaximum) {
  StepRig free(rig_options(2, 1)), clipped(rig_options(2, 1));
  const std::vector<Batch> batch = {rows(kTokens, kLabels)};
  StepOptions options = plain(1);
  const StepOutcome a = train_step(free.context(), batch, options);
  options.grad_clip = a.grad_norm / 4;
  const StepOutcome b = train_step(clipped.context(), batch, options);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  const auto ma = first_moment(free), mb = first_moment(clipped);  // m = (1 - beta1) g
  for (size_t i = 0; i < ma.size(); ++i) ASSERT_NEAR(ma[i] / 4, mb[i], 1e-6 * std::abs(ma[i])) << i;
}

}  // namespace
}  // namespace headrace
