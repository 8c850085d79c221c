// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "cli/progress.h"

namespace headrace::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

Plan sample_plan() {
  Plan plan;
  plan.items = {{Tier::device, "windows of gathered units", 3u << 20, "offload.prefetch_units"},
                {Tier::device, "workspace", 1u << 20, "train.micro_batch"},
                {Tier::host, "slots", 2u << 20, "nvme.chunk_bytes"},
                {Tier::nvme, "optimizer state", 10u << 20, "offload.optimizer"}};
  plan.placement = {
      .weights = Tier::host, .optimizer = Tier::nvme, .activations = Tier::host, .gradients = Tier::host};
  plan.device_budget = 4u << 20;
  plan.host_budget = 1u << 20;
  plan.param_count = 1000;
  return plan;
}

TEST(PlanTable, ComparesTotalsWithBudgetsAndNamesKeys) {
  const std::string table = plan_table(sample_plan());
  EXPECT_THAT(table, HasSubstr("workspace"));
  EXPECT_THAT(table, HasSubstr("offload.prefetch_units"));
  EXPECT_THAT(table, HasSubstr("device.memory = 4.00 MiB: fits"));
  EXPECT_THAT(table, HasSubstr("offload.host_memory = 1.00 MiB: 1.00 MiB too much"));
}

TEST(PlanJson, SumsTheItemsOfATier) {
  const json plan = json::parse(plan_json(sample_plan()));
  EXPECT_EQ(plan["param_count"], 1000);
  EXPECT_EQ(plan["fits"], false);
  EXPECT_EQ(plan["tiers"]["device"]["total_bytes"], 4u << 20);
  EXPECT_EQ(plan["tiers"]["device"]["budget_bytes"], 4u << 20);
  EXPECT_EQ(plan["tiers"]["nvme"]["items"][0]["key"], "offload.optimizer");
  EXPECT_TRUE(plan["tiers"]["nvme"]["budget_bytes"].is_null());
  EXPECT_EQ(plan["placement"]["optimizer"], "nvme");
}

TEST(RunReport, ShowsBytesSpeedsWaitsPeaksLossAndPlace) {
  RunSummary summary;
  summary.seconds = 10;
  summary.stats.link[size_t(Link::nvme_read)] = {.bytes = 20'000'000'000, .busy_ns = 5'000'000'000};
  summary.stats.wait_ns[size_t(WaitCause::nvme)] = 2'000'000'000;
  summary.stats.peak_device_bytes = 1u << 20;
  summary.valid_loss = 1.5;
  summary.saved_folder = "runs/x/step-0000000010";
  summary.trained_tokens = 1000;
  const std::string report = run_report(summary, Config{}, 1u << 21);
  EXPECT_THAT(report, HasSubstr("18.63 GiB            4.00            2.00     50%"));
  EXPECT_THAT(report, HasSubstr("nvme 2.0 s (20%)"));
  EXPECT_THAT(report, HasSubstr("device 1.00 MiB of 512.00 MiB"));
  EXPECT_THAT(report, HasSubstr("process 2.00 MiB"));
  EXPECT_THAT(report, HasSubstr("1.5000 nats per byte"));
  EXPECT_THAT(report, HasSubstr("runs/x/step-0000000010"));
  EXPECT_THAT(report, HasSubstr("100 tokens/s"));
}

TEST(ProgressLine, ShowsMeansOfItsWindowAndTheTimeLeft) {
  StepMetrics metrics;
  metrics.step = 12;
  metrics.loss = 3.28461;
  metrics.grad_norm = 4.32;
  metrics.lr = 3e-4;
  metrics.step_ms = 500;
  metrics.delta.wait_ns[size_t(WaitCause::copy)] = 100'000'000;
  ProgressWindow window;
  window.add(metrics, 10'000);
  window.add(metrics, 30'000);
  EXPECT_EQ(progress_line(metrics, 1000, window, 125),
            "step 12/1000 | loss 3.2846 | norm 4.320 | lr 3.00e-04 | 40.0k tok/s | wait 20% | left 2m 05s");
  metrics.delta.link[size_t(Link::nvme_write)] = {.bytes = 4'000'000'000, .busy_ns = 1'000'000'000};
  metrics.skipped_steps = 2;
  window.add(metrics, 0);
  EXPECT_THAT(progress_line(metrics, 1000, window, 1),
              ::testing::AllOf(HasSubstr("nvme r 0.00 w 4.00 GB/s"), HasSubstr("skipped 2")));
}

TEST(Progress, OnAPipePrintsPlainLinesPerLogEvery) {
  std::FILE* file = std::tmpfile();
  Progress progress(file, 7, 3);
  for (uint64_t step = 1; step <= 7; ++step) {
    StepMetrics metrics;
    metrics.step = step;
    metrics.tokens = step * 100;
    metrics.step_ms = 1000;
    metrics.tokens_per_s = 100;
    progress.step(metrics);
  }
  progress.finish();
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);  // the first, 3, 6, and the last
  EXPECT_THAT(text, HasSubstr("step 1/7"));
  EXPECT_THAT(text, HasSubstr("step 3/7"));
  EXPECT_THAT(text, HasSubstr("step 6/7"));
  EXPECT_THAT(text, HasSubstr("step 7/7"));
  EXPECT_THAT(text, HasSubstr("100 tok/s"));
  EXPECT_THAT(text, HasSubstr("left 4s"));  // at step 3 of 7, one second a step
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

}  // namespace
}  // namespace headrace::cli
