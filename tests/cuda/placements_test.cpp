// SPDX-License-Identifier: Apache-2.0
// Steps of models whose attention takes the tensor-core kernels (head dimension 64), under placements that
// differ in every tier: the same bits, and the same bits again in a second run.
#include <gtest/gtest.h>

#include "tests/temp_dir.h"
#include "tests/train/step_rig.h"

namespace headrace::test {
namespace {

#ifdef HEADRACE_CUDA_EMULATED
constexpr int64_t kLayers = 2, kBatch = 1, kSeq = 72;  // still more than one tile of attention
#else
constexpr int64_t kLayers = 4, kBatch = 2, kSeq = 96;
#endif
constexpr Placement kAllDevice{Tier::device, Tier::device, Tier::device, {}};

Batch batch_of(uint64_t t, size_t micro_batch, size_t vocab) {
  Batch batch;
  batch.resize(kBatch, kSeq);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    const size_t walk = i * 7 + micro_batch * 13 + t * 5;
    batch.tokens[i] = int32_t(walk % vocab);
    batch.labels[i] = i % 11 == 3 ? Batch::kNoLabel : int32_t((walk + 7) % vocab);
  }
  return batch;
}

struct Result {
  std::vector<double> losses, norms;
  std::vector<std::byte> state;
};

Result four_steps(const ModelConfig& model, DType precision, Placement placement) {
  TempDir dir;
  StepRig rig({.model = model,
               .shape = {.micro_batch = kBatch, .seq_len = kSeq, .grad_accum = 2},
               .engine = roomy_engine(precision, placement, dir.path()),
               .seed = 5});
  Result result;
  for (uint64_t t = 1; t <= 4; ++t) {
    const std::vector<Batch> batches = {batch_of(t, 0, size_t(model.vocab)),
                                        batch_of(t, 1, size_t(model.vocab))};
    const double clip = t == 2 ? 0.05 : 1e3;  // clips in one step only
    const StepOutcome outcome = train_step(
        rig.context(), batches, {.adam = {.lr = 2e-3, .weight_decay = 0.1}, .grad_clip = clip, .t = t});
    result.losses.push_back(outcome.loss);
    result.norms.push_back(outcome.grad_norm);
  }
  result.state = rig.state();
  return result;
}

struct ModelCase {
  const char* name;
  Family family;
  DType precision;
};
class TensorCorePlacements : public testing::TestWithParam<ModelCase> {};

TEST_P(TensorCorePlacements, LossesNormsAndStateAreTheSameBits) {
  const auto& [name, family, precision] = GetParam();
  const bool llama = family == Family::llama;
  const ModelConfig model{.family = family,
                          .layers = kLayers,
                          .hidden = 256,
                          .heads = 4,
                          .kv_heads = llama ? 2 : 4,
                          .ffn = 640,
                          .vocab = 257,
                          .max_seq = kSeq,
                          .tied = !llama};
  const Result reference = four_steps(model, precision, kAllDevice);
  EXPECT_LT(reference.losses[3], reference.losses[0]) << "it does not even learn";
  const std::pair<const char*, Placement> others[] = {
      {"the same again", kAllDevice},
      {"host", {Tier::host, Tier::host, Tier::host, {}}},
      {"weights on host, optimizer on nvme", {Tier::host, Tier::nvme, Tier::device, Tier::host}},
      {"nvme", {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme}}};
  for (const auto& [what, placement] : others) {
    const Result here = four_steps(model, precision, placement);
    EXPECT_EQ(reference.losses, here.losses) << what;
    EXPECT_EQ(reference.norms, here.norms) << what;
    EXPECT_TRUE(reference.state == here.state) << what << ": other weights or moments";
  }
}

INSTANTIATE_TEST_SUITE_P(Step, TensorCorePlacements,
                         testing::Values(ModelCase{"llama_bf16", Family::llama, DType::bf16},
                                         ModelCase{"llama_fp32", Family::llama, DType::f32},
                                         ModelCase{"gpt2_bf16", Family::gpt2, DType::bf16}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace headrace::test
