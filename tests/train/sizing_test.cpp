// SPDX-License-Identifier: Apache-2.0
// Which key a plan names for the trainer's own memory.
#include "train/sizing.h"

#include <gtest/gtest.h>

#include "tests/train/tiny_run.h"

namespace headrace {
namespace {

std::string workspace_key_of(int64_t micro_batch, int64_t grad_accum, int64_t seq_len) {
  test::TempDir dir;
  Config config = test::tiny_config(dir, test::kNvme);
  config.model.max_seq = config.seq_len = seq_len;
  config.train.micro_batch = micro_batch;
  config.train.grad_accum = grad_accum;
  for (const PlanItem& item : plan_run(config).items) {
    if (item.what == "workspace") return item.key;
  }
  return "no workspace";
}

TEST(PlanOfARun, NamesTheNumberThatMakesTheWorkspaceLarge) {
  EXPECT_EQ(workspace_key_of(64, 2, 64), "train.micro_batch");
  EXPECT_EQ(workspace_key_of(4, 2000, 64), "train.grad_accum");
  EXPECT_EQ(workspace_key_of(1, 1, 4096), "data.seq_len");
}

}  // namespace
}  // namespace headrace
