// SPDX-License-Identifier: Apache-2.0
// Four layers against sixteen with everything on NVMe: the same pinned and device memory, as planned, and a
// process that is no larger than its plan says.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "tests/temp_dir.h"
#include "tests/train/step_rig.h"

namespace headrace {
namespace {

uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(std::strlen("VmRSS:"))) * 1024;
  }
  return 0;
}

struct Footprint {
  uint64_t planned_device, planned_host, device, pinned, resident;
};

Footprint footprint(int64_t layers) {
  test::TempDir dir;
  test::RigOptions o{.model = {.family = Family::llama,
                               .layers = layers,
                               .hidden = 256,
                               .heads = 4,
                               .kv_heads = 2,
                               .ffn = 704,
                               .vocab = 256,
                               .max_seq = 128},
                     .shape = {.micro_batch = 16, .seq_len = 128, .grad_accum = 2},
                     .engine = test::roomy_engine(
                         DType::bf16, {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme}, dir.path())};
  std::vector<Batch> batches(2);
  for (Batch& batch : batches) {
    batch.resize(16, 128);
    for (size_t i = 0; i < batch.tokens.size(); ++i) batch.tokens[i] = batch.labels[i] = int32_t(i % 256);
  }
  const uint64_t before = resident_bytes();
  test::StepRig rig(o);
  for (uint64_t t = 1; t <= 2; ++t) train_step(rig.context(), batches, {.adam = {}, .grad_clip = 1, .t = t});
  const Stats stats = rig.engine.stats();
  const Plan& plan = rig.engine.plan();
  return {plan.total(Tier::device), plan.total(Tier::host), stats.peak_device_bytes, stats.peak_pinned_bytes,
          resident_bytes() - before};
}

TEST(Depth, SixteenLayersNeedTheMemoryOfFour) {
  (void)footprint(1);  // libraries and their code caches are in place from here on
  const Footprint shallow = footprint(4), deep = footprint(16);
  EXPECT_EQ(shallow.planned_device, deep.planned_device);
  EXPECT_EQ(shallow.planned_host, deep.planned_host);
  for (const Footprint& f : {shallow, deep}) {
    EXPECT_EQ(f.device, f.planned_device);
    EXPECT_EQ(f.pinned, f.planned_host);
    const double planned = double(f.planned_device + f.planned_host);
    EXPECT_NEAR(double(f.resident), planned, 0.05 * planned);
  }
}

}  // namespace
}  // namespace headrace
