// SPDX-License-Identifier: Apache-2.0
// Whole optimizer steps against PyTorch, and against themselves under every placement.
#include "train/step.h"

#include <gtest/gtest.h>

#include "tests/fixtures/fixture.h"
#include "tests/temp_dir.h"
#include "tests/test_device.h"
#include "tests/train/step_rig.h"

namespace headrace {
namespace {

using test::Fixture;
using test::RigOptions;
using test::StepRig;

std::vector<Batch> batches_of(const Fixture& fixture, const test::FixtureStep& step) {
  std::vector<Batch> batches;
  for (const test::FixtureMicroBatch& from : step.micro_batches) {
    Batch batch;
    batch.resize(fixture.batch, fixture.seq);
    batch.tokens = from.tokens;
    batch.labels = from.labels;
    batches.push_back(std::move(batch));
  }
  return batches;
}

RigOptions rig_for(const Fixture& fixture, DType precision, Placement placement, const std::string& path) {
  return {.model = fixture.model,
          .shape = {.micro_batch = fixture.batch,
                    .seq_len = fixture.seq,
                    .grad_accum = int64_t(fixture.steps[0].micro_batches.size())},
          .engine = test::roomy_engine(precision, placement, path)};
}

void load_initial(StepRig& rig, const Fixture& fixture) {
  for (uint32_t u = 0; u < fixture.units.size(); ++u) {
    const UnitLayout& layout = rig.engine.layout(UnitId{u});
    rig.engine.visit_state(UnitId{u}, StateAccess::overwrite, [&](const StateTile& tile) {
      ASSERT_EQ(tile.first, 0) << "the tiny units are one tile";
      for (size_t s = 0; s < layout.segments.size(); ++s) {
        const test::FixtureSegment& from = fixture.units[u].segments[s];
        std::copy_n(fixture.initial.data() + from.offset, from.elems,
                    reinterpret_cast<float*>(tile.weights) + layout.segments[s].offset);
      }
    });
  }
}

class AgainstPyTorch : public testing::TestWithParam<const char*> {};

TEST_P(AgainstPyTorch, TenStepsWithClippingAgree) {
  const Fixture fixture = test::load_fixture(GetParam());
  test::TempDir dir;
  StepRig rig(rig_for(fixture, DType::f32, {Tier::nvme, Tier::nvme, Tier::host, {}}, dir.path()));
  load_initial(rig, fixture);
  ASSERT_EQ(fixture.steps.size(), 10u);
  int clipped = 0;
  for (size_t t = 0; t < fixture.steps.size(); ++t) {
    const test::FixtureStep& expected = fixture.steps[t];
    const StepOutcome outcome = train_step(rig.context(), batches_of(fixture, expected),
                                           {.adam = fixture.adam, .grad_clip = fixture.max_norm, .t = t + 1});
    EXPECT_NEAR(outcome.loss, expected.loss, 1e-5 * expected.loss) << "step " << t + 1;
    EXPECT_NEAR(outcome.grad_norm, expected.grad_norm, 1e-4 * expected.grad_norm) << "step " << t + 1;
    EXPECT_EQ(outcome.counted, expected.counted());
    clipped += expected.grad_norm > fixture.max_norm;
  }
  EXPECT_GT(clipped, 0) << "the fixture must clip in some steps";
  EXPECT_LT(clipped, 10);

  for (uint32_t u = 0; u < fixture.units.size(); ++u) {
    const UnitLayout& layout = rig.engine.layout(UnitId{u});
    rig.engine.visit_state(UnitId{u}, StateAccess::read, [&](const StateTile& tile) {
      for (size_t s = 0; s < layout.segments.size(); ++s) {
        const test::FixtureSegment& from = fixture.units[u].segments[s];
        const float* weights = reinterpret_cast<const float*>(tile.weights) + layout.segments[s].offset;
        for (int64_t i = 0; i < from.elems; ++i) {
          ASSERT_NEAR(weights[i], fixture.final[size_t(from.offset + i)], 1e-4)
              << fixture.units[u].name << " " << from.segment.name << " " << i;
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, AgainstPyTorch, testing::Values("tiny_llama", "tiny_gpt2"),
                         [](const auto& test) { return std::string(test.param); });

// The same run under every placement.

struct Variant {
  const char* name;
  Placement placement;
  uint64_t host_memory = 512u << 20;
  nvme::EngineKind engine = nvme::EngineKind::automatic;
  unsigned prefetch_units = 2;
  uint32_t activation_slots = 4;
  bool keep_saved = false;
};

const Variant kVariants[] = {
    {"AllDevice", {Tier::device, Tier::device, Tier::device, {}}},
    {"AllDeviceKeepingIntermediates",
     {Tier::device, Tier::device, Tier::device, {}},
     512u << 20,
     nvme::EngineKind::automatic,
     2,
     4,
     true},
    {"AllHost", {Tier::host, Tier::host, Tier::host, {}}},
    {"WeightsHostOptimizerNvme", {Tier::host, Tier::nvme, Tier::host, {}}},
    {"EverythingNvme", {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme}},
    {"EverythingNvmePosix",
     {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme},
     512u << 20,
     nvme::EngineKind::posix},
    {"SmallBudgets",
     {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme},
     5u << 20,
     nvme::EngineKind::automatic,
     1,
     3},
    {"NoPrefetch",
     {Tier::nvme, Tier::nvme, Tier::host, Tier::host},
     512u << 20,
     nvme::EngineKind::automatic,
     0},
};

struct RunResult {
  std::vector<double> losses, norms;
  std::vector<std::byte> state;
};

RunResult run_variant(const ModelConfig& model, const Variant& variant, DType precision,
                      const std::string& path) {
  RigOptions o{.model = model,
               .shape = {.micro_batch = 2, .seq_len = 24, .grad_accum = 3, .keep_saved = variant.keep_saved},
               .engine = test::roomy_engine(precision, variant.placement, path),
               .seed = 5};
  o.engine.host_memory = variant.host_memory;
  o.engine.nvme.engine = variant.engine;
  o.engine.prefetch_units = variant.prefetch_units;
  o.engine.activation_slots = variant.activation_slots;
  StepRig rig(o);
  RunResult result;
  for (uint64_t t = 1; t <= 4; ++t) {
    std::vector<Batch> batches(t == 3 ? 2 : 3);  // a short step as at the end of an epoch
    for (size_t mb = 0; mb < batches.size(); ++mb) {
      batches[mb].resize(2, 24);
      for (size_t i = 0; i < batches[mb].tokens.size(); ++i) {
        batches[mb].tokens[i] = int32_t((i * 7 + mb * 13 + t * 5) % 61);
        batches[mb].labels[i] = i % 11 == 3 ? Batch::kNoLabel : int32_t((i * 7 + mb * 13 + t * 5 + 7) % 61);
      }
    }
    const double clip = t == 2 ? 0.05 : 1e3;
    const StepOutcome outcome = train_step(
        rig.context(), batches, {.adam = {.lr = 1e-2, .weight_decay = 0.1}, .grad_clip = clip, .t = t});
    result.losses.push_back(outcome.loss);
    result.norms.push_back(outcome.grad_norm);
  }
  result.losses.push_back(evaluate(rig.context(), std::vector<Batch>(1, [] {
                                     Batch batch;
                                     batch.resize(2, 24);
                                     for (size_t i = 0; i < batch.tokens.size(); ++i) {
                                       batch.tokens[i] = batch.labels[i] = int32_t(i % 61);
                                     }
                                     return batch;
                                   }())));
  result.state = rig.state();
  return result;
}

using PlacementCase = std::tuple<Variant, Family, DType>;
class Placements : public testing::TestWithParam<PlacementCase> {};

TEST_P(Placements, LossesNormsWeightsAndMomentsAreTheSameBits) {
  const auto& [variant, family, precision] = GetParam();
  ModelConfig model{.family = family,
                    .layers = 4,
                    .hidden = 96,
                    .heads = 4,
                    .kv_heads = 2,
                    .ffn = 160,
                    .vocab = 61,
                    .max_seq = 24,
                    .tied = false};
  if (family == Family::gpt2) model.kv_heads = 4, model.tied = true;
  test::TempDir dir;
  const RunResult reference = run_variant(model, kVariants[0], precision, dir.path());
  const RunResult here = run_variant(model, variant, precision, dir.path());
  EXPECT_EQ(reference.losses, here.losses);
  EXPECT_EQ(reference.norms, here.norms);
  EXPECT_TRUE(reference.state == here.state);
  EXPECT_LT(here.losses[3], here.losses[0]) << "it does not even learn";
}

TEST(TiedEmbedding, MayHaveTheSizeOfALayer) {
  // Padded to pages, the 61 x 32 table and a layer of this shape take the same bytes.
  ModelConfig model{.family = Family::llama,
                    .layers = 2,
                    .hidden = 16,
                    .heads = 2,
                    .kv_heads = 1,
                    .ffn = 10,
                    .vocab = 61,
                    .max_seq = 24,
                    .tied = true};
  const auto tied = make_model(model, DType::bf16, test::kTestDeviceKind);
  const auto pages = [&](size_t unit) { return (layout_of(tied->units()[unit]).elems + 2047) / 2048; };
  ASSERT_EQ(pages(0), pages(1));
  test::TempDir dir;
  const RunResult reference = run_variant(model, kVariants[0], DType::bf16, dir.path());
  const RunResult here = run_variant(model, kVariants[7], DType::bf16, dir.path());
  EXPECT_EQ(reference.losses, here.losses);
  EXPECT_TRUE(reference.state == here.state);
}

INSTANTIATE_TEST_SUITE_P(Step, Placements,
                         testing::Combine(testing::ValuesIn(kVariants),
                                          testing::Values(Family::llama, Family::gpt2),
                                          testing::Values(DType::bf16, DType::f32)),
                         [](const testing::TestParamInfo<PlacementCase>& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  (std::get<1>(test.param) == Family::llama ? "Llama" : "Gpt2") +
                                  dtype_name(std::get<2>(test.param));
                         });

}  // namespace
}  // namespace headrace
