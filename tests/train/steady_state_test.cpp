// SPDX-License-Identifier: Apache-2.0
// After the first step nothing is allocated and nothing grows. This program replaces operator new to count;
// what oneDNN allocates inside its own execute call (a small map per call) is not ours to change and is
// excluded by thread: it only runs on the compute stream's thread, whose allocations are counted apart and
// bounded by size.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/counted_new.h"
#include "tests/temp_dir.h"
#include "tests/train/step_rig.h"

namespace headrace {
namespace {

size_t entries(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

uint64_t status_kib(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoull(line.substr(std::strlen(key)));
  }
  return 0;
}

test::RigOptions rig_options(const std::string& path, int64_t layers, Placement placement) {
  test::RigOptions o{.model = {.family = Family::llama,
                               .layers = layers,
                               .hidden = 64,
                               .heads = 4,
                               .kv_heads = 2,
                               .ffn = 96,
                               .vocab = 50,
                               .max_seq = 16},
                     .shape = {.micro_batch = 2, .seq_len = 16, .grad_accum = 2},
                     .engine = test::roomy_engine(DType::bf16, placement, path)};
  return o;
}

std::vector<Batch> some_batches() {
  std::vector<Batch> batches(2);
  for (Batch& batch : batches) {
    batch.resize(2, 16);
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      batch.tokens[i] = int32_t(i % 50);
      batch.labels[i] = int32_t((i + 1) % 50);
    }
  }
  return batches;
}

class SteadyState : public testing::TestWithParam<Placement> {};

TEST_P(SteadyState, NothingAllocatesAfterTheFirstStep) {
  test::TempDir dir;
  test::StepRig rig(rig_options(dir.path(), 3, GetParam()));
  const std::vector<Batch> batches = some_batches();
  const StepContext context = rig.context();
  const auto step = [&](uint64_t t) {
    return train_step(context, batches, {.adam = {}, .grad_clip = 1, .t = t});
  };
  step(1);
  reset_largest_on_compute();
  const size_t before = allocation_count_off_compute();
  for (uint64_t t = 2; t < 12; ++t) step(t);
  EXPECT_EQ(allocation_count_off_compute(), before);
  EXPECT_LT(largest_allocation_on_compute(), 4096u);
}

TEST_P(SteadyState, DescriptorsThreadsAndMemoryAreFlatOver200Steps) {
  test::TempDir dir;
  test::StepRig rig(rig_options(dir.path(), 2, GetParam()));
  const std::vector<Batch> batches = some_batches();
  const auto step = [&](uint64_t t) {
    train_step(rig.context(), batches, {.adam = {}, .grad_clip = 1, .t = t});
  };
  for (uint64_t t = 1; t <= 5; ++t) step(t);
  const size_t descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  const uint64_t locked = status_kib("VmLck:"), resident = status_kib("VmRSS:");
  for (uint64_t t = 6; t <= 200; ++t) step(t);
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries("/proc/self/task"), threads);
  EXPECT_EQ(status_kib("VmLck:"), locked);
  EXPECT_LE(status_kib("VmRSS:"), resident + 1024);
}

INSTANTIATE_TEST_SUITE_P(Train, SteadyState,
                         testing::Values(Placement{Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme},
                                         Placement{Tier::host, Tier::nvme, Tier::host, {}},
                                         Placement{Tier::device, Tier::device, Tier::device, {}}),
                         [](const auto& test) {
                           return std::string(tier_name(test.param.weights)) +
                                  tier_name(test.param.optimizer);
                         });

}  // namespace
}  // namespace headrace
