// SPDX-License-Identifier: Apache-2.0
// Whole optimizer steps on the GPU: against PyTorch's fixtures, and against themselves under placements that
// differ in every tier.
#include <gtest/gtest.h>

#include "gpu.h"
#include "tests/engine_state.h"
#include "tests/fixtures/fixture.h"
#include "tests/temp_dir.h"
#include "train/saving.h"
#include "train/step.h"

namespace headrace::test {
namespace {

DeviceKind model_kind() {
  return tried_out_on_the_host() ? DeviceKind::host : DeviceKind::cuda;
}

/// A model, an engine on the device under test and the trainer's memory.
class GpuRig {
 public:
  GpuRig(const ModelConfig& config, const StepShape& shape, const EngineOptions& options)
      : model(make_model(config, options.precision, model_kind())),
        memory(*model, shape),
        order(*model),
        engine(completed(options, shape), {model->units().begin(), model->units().end()}) {
    memory.place(engine.workspace());
    initialize_run(engine, *model, 5, options.precision);
  }
  StepContext context() { return {engine, *model, memory, order}; }

  std::unique_ptr<Model> model;
  StepMemory memory;
  GatherOrder order;
  Engine engine;

 private:
  EngineOptions completed(EngineOptions options, const StepShape& shape) const {
    options.device = tried_out_on_the_host() ? DeviceChoice::host : DeviceChoice::cuda;
    options.device_memory = options.host_memory = 512u << 20;
    options.workspace_bytes = memory.bytes();
    options.activation_bytes = model->activation_bytes(shape.micro_batch, shape.seq_len);
    options.activation_count = activation_count(model->stages(), shape.grad_accum);
    return options;
  }
};

EngineOptions placed(DType precision, Placement placement, const std::string& path) {
  EngineOptions options{.precision = precision, .placement = placement};
  options.nvme.paths = {path};
  return options;
}

constexpr Placement kAllDevice{Tier::device, Tier::device, Tier::device, {}};
constexpr Placement kAllNvme{Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme};

// Against PyTorch.

/// visit(tile's first weight, the fixture's segment) for every segment: the tiny units are one tile each.
template <class Visit>
void each_segment(Engine& engine, const Fixture& fixture, StateAccess access, const Visit& visit) {
  for (uint32_t u = 0; u < fixture.units.size(); ++u) {
    const UnitLayout& layout = engine.layout(UnitId{u});
    engine.visit_state(UnitId{u}, access, [&](const StateTile& tile) {
      ASSERT_EQ(tile.first, 0);
      for (size_t s = 0; s < layout.segments.size(); ++s)
        visit(reinterpret_cast<float*>(tile.weights) + layout.segments[s].offset,
              fixture.units[u].segments[s]);
    });
  }
}

std::vector<Batch> batches_of(const Fixture& fixture, const FixtureStep& step) {
  std::vector<Batch> batches;
  for (const FixtureMicroBatch& from : step.micro_batches)
    batches.push_back({fixture.batch, fixture.seq, from.tokens, from.labels});
  return batches;
}

class FixtureOnGpu : public OnTheGpu<testing::TestWithParam<const char*>> {};

TEST_P(FixtureOnGpu, TenStepsWithClippingFollowPyTorch) {
  const Fixture fixture = load_fixture(GetParam());
  TempDir dir;
  GpuRig rig(fixture.model, {fixture.batch, fixture.seq, int64_t(fixture.steps[0].micro_batches.size())},
             placed(DType::f32, {Tier::nvme, Tier::nvme, Tier::host, {}}, dir.path()));
  each_segment(rig.engine, fixture, StateAccess::overwrite, [&](float* to, const FixtureSegment& segment) {
    std::copy_n(fixture.initial.data() + segment.offset, segment.elems, to);
  });
  ASSERT_EQ(fixture.steps.size(), 10u);
  for (size_t t = 0; t < fixture.steps.size(); ++t) {
    const FixtureStep& expected = fixture.steps[t];
    const StepOutcome outcome = train_step(rig.context(), batches_of(fixture, expected),
                                           {.adam = fixture.adam, .grad_clip = fixture.max_norm, .t = t + 1});
    EXPECT_NEAR(outcome.loss, expected.loss, 1e-5 * expected.loss) << "step " << t + 1;
    EXPECT_NEAR(outcome.grad_norm, expected.grad_norm, 1e-4 * expected.grad_norm) << "step " << t + 1;
    EXPECT_EQ(outcome.counted, expected.counted());
  }
  double worst = 0;
  each_segment(rig.engine, fixture, StateAccess::read, [&](const float* from, const FixtureSegment& segment) {
    for (int64_t i = 0; i < segment.elems; ++i)
      worst = std::max(worst, std::fabs(double(from[i]) - double(fixture.final[size_t(segment.offset + i)])));
  });
  EXPECT_LT(worst, 1e-4) << "largest distance of a weight after ten steps";
}

INSTANTIATE_TEST_SUITE_P(Cuda, FixtureOnGpu, testing::Values("tiny_llama", "tiny_gpt2"),
                         [](const auto& test) { return std::string(test.param); });

// Placements.

struct Result {
  std::vector<double> numbers;  ///< loss and norm of every step
  std::vector<std::byte> state;
};

Result four_steps(const ModelConfig& model, DType precision, Placement placement) {
  TempDir dir;
  constexpr int64_t kBatch = 2, kSeq = 96;
  GpuRig rig(model, {kBatch, kSeq, 2}, placed(precision, placement, dir.path()));
  Result result;
  for (uint64_t t = 1; t <= 4; ++t) {
    std::vector<Batch> batches(2);
    for (size_t mb = 0; mb < batches.size(); ++mb) {
      batches[mb].resize(kBatch, kSeq);
      for (size_t i = 0; i < batches[mb].tokens.size(); ++i) {
        const size_t walk = i * 7 + mb * 13 + t * 5;
        batches[mb].tokens[i] = int32_t(walk % size_t(model.vocab));
        batches[mb].labels[i] = i % 11 == 3 ? Batch::kNoLabel : int32_t((walk + 7) % size_t(model.vocab));
      }
    }
    const double clip = t == 2 ? 0.05 : 1e3;  // clips in one step only
    const StepOutcome outcome = train_step(
        rig.context(), batches, {.adam = {.lr = 1e-2, .weight_decay = 0.1}, .grad_clip = clip, .t = t});
    result.numbers.insert(result.numbers.end(), {outcome.loss, outcome.grad_norm});
  }
  result.state = state_bytes(rig.engine);
  return result;
}

struct ModelCase {
  const char* name;
  Family family;
  DType precision;
};
class PlacementsOnGpu : public OnTheGpu<testing::TestWithParam<ModelCase>> {};

TEST_P(PlacementsOnGpu, LossesNormsAndStateAreTheSameBits) {
  const auto& [name, family, precision] = GetParam();
  const bool llama = family == Family::llama;
  const ModelConfig model{.family = family,
                          .layers = 4,
                          .hidden = 256,
                          .heads = 4,
                          .kv_heads = llama ? 2 : 4,
                          .ffn = 640,
                          .vocab = 257,
                          .max_seq = 96,
                          .tied = !llama};
  const Result reference = four_steps(model, precision, kAllDevice);
  EXPECT_LT(reference.numbers[6], reference.numbers[0]) << "it does not even learn";
  const std::pair<const char*, Placement> others[] = {
      {"the same again", kAllDevice},
      {"host", {Tier::host, Tier::host, Tier::host, {}}},
      {"weights on host, optimizer on nvme", {Tier::host, Tier::nvme, Tier::device, Tier::host}},
      {"nvme", kAllNvme}};
  for (const auto& [what, placement] : others) {
    const Result here = four_steps(model, precision, placement);
    EXPECT_EQ(reference.numbers, here.numbers) << what;
    EXPECT_TRUE(reference.state == here.state) << what << ": other weights or moments";
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, PlacementsOnGpu,
                         testing::Values(ModelCase{"llama_bf16", Family::llama, DType::bf16},
                                         ModelCase{"llama_fp32", Family::llama, DType::f32},
                                         ModelCase{"gpt2_bf16", Family::gpt2, DType::bf16}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace headrace::test
