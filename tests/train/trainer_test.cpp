// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "checkpoint/saved_run.h"
#include "headrace/error.h"
#include "tests/temp_dir.h"
#include "tests/train/tiny_run.h"

namespace headrace {
namespace {

using namespace test;

std::vector<std::byte> bytes_of(const std::string& folder) {
  std::vector<std::byte> all;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".bin") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    all.insert(all.end(), data, data + text.size());
  }
  return all;
}

TEST(Trainer, LearnsAndReportsAndSaves) {
  test::TempDir dir;
  Config config = tiny_config(dir, kNvme);
  config.train.steps = 30;
  Record record;
  Trainer trainer(config, "# test\n", record.events());
  const RunSummary summary = trainer.run();
  EXPECT_EQ(summary.step, 30u);
  ASSERT_EQ(record.losses.size(), 30u);
  EXPECT_NEAR(record.losses[0], std::log(256.0), 0.5);  // an untrained model knows nothing
  EXPECT_LT(record.losses[29], record.losses[0] - 1);
  ASSERT_TRUE(summary.valid_loss);
  EXPECT_LT(*summary.valid_loss, record.losses[0] - 1);
  EXPECT_GT(summary.stats[Link::nvme_read].bytes, 0u);
  EXPECT_TRUE(std::filesystem::exists(summary.saved_folder + "/manifest.json"));
}

/// Losses and saved state of `steps` uninterrupted steps.
std::pair<std::vector<double>, std::vector<std::byte>> uninterrupted(Placement placement) {
  test::TempDir dir;
  Record record;
  Trainer trainer(tiny_config(dir, placement), "", record.events());
  const RunSummary summary = trainer.run();
  return {record.losses, bytes_of(summary.saved_folder)};
}

TEST(Trainer, ResumesBitIdenticallyAtEveryStepWithTheTiersChanged) {
  const auto [losses, state] = uninterrupted(kDevice);
  for (uint64_t cut = 1; cut < 8; ++cut) {
    test::TempDir dir;
    Config config = tiny_config(dir, cut % 2 ? kNvme : kDevice);
    Record record;
    TrainerEvents stopping = record.events();
    stopping.stop_requested = [&] { return record.losses.size() >= cut; };
    Trainer(config, "", stopping).run();
    ASSERT_EQ(record.losses.size(), cut);

    config.engine.placement = cut % 2 ? Placement{Tier::host, Tier::nvme, Tier::host, {}} : kNvme;
    Trainer second(config, "", record.events());
    ASSERT_TRUE(second.resume());
    const RunSummary summary = second.run();
    EXPECT_EQ(record.losses, losses) << "cut after step " << cut;
    EXPECT_TRUE(bytes_of(summary.saved_folder) == state) << "cut after step " << cut;
  }
}

TEST(Trainer, StartingAnewSetsAnEarlierTrainingsSavedRunsAside) {
  test::TempDir dir;
  Config config = tiny_config(dir, kDevice);
  config.checkpoint_keep = 1;
  Trainer(config, "", {}).run();
  config.train.steps = 2;
  std::vector<std::string> notices;
  TrainerEvents events;
  events.on_notice = [&](const std::string& line) { notices.push_back(line); };
  const RunSummary summary = Trainer(config, "", events).run();
  EXPECT_EQ(summary.step, 2u);
  EXPECT_TRUE(std::filesystem::exists(summary.saved_folder)) << "the earlier run's later step pushed it out";
  EXPECT_EQ(SavedRun::newest(config.checkpoint_dir, {})->state().step, 2u);
  EXPECT_EQ(SavedRun::newest(config.checkpoint_dir + "/earlier-1", {})->state().step, 8u);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("earlier-1"), std::string::npos);
}

TEST(Trainer, WithNothingToResumeSaysSo) {
  test::TempDir dir;
  Record record;
  Trainer trainer(tiny_config(dir, kDevice), "", record.events());
  EXPECT_FALSE(trainer.resume());
}

TEST(Trainer, AnEpochsLastStepIsShortAndDividesByItsOwnTokens) {
  // 40 windows, 2 rows a micro-batch, 3 micro-batches a step: 20 micro-batches, so steps of 6,6,...,6 rows
  // and a last one of 4 rows: the seventh.
  test::TempDir dir;
  Config config = tiny_config(dir, kDevice);
  config.train.grad_accum = 3;
  std::vector<uint64_t> tokens;
  TrainerEvents events;
  events.on_step = [&](const StepMetrics& m) { tokens.push_back(m.tokens); };
  Trainer(config, "", events).run();
  ASSERT_EQ(tokens.size(), 8u);
  EXPECT_EQ(tokens[5], 6u * 6 * 16);
  EXPECT_EQ(tokens[6] - tokens[5], 4u * 16);
  EXPECT_EQ(tokens[7] - tokens[6], 6u * 16);
}

TEST(Trainer, StopsAfterTooManySkippedStepsInARow) {
  test::TempDir dir;
  Config config = tiny_config(dir, kDevice);
  config.optimizer.adam.lr = 1e38;  // the second step sees weights that overflow
  config.optimizer.warmup_steps = 0;
  config.optimizer.grad_clip = 0;
  config.optimizer.max_skipped_steps = 3;
  Record record;
  Trainer trainer(config, "", record.events());
  try {
    trainer.run();
    FAIL() << "a diverged training went on";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("max_skipped_steps"), std::string::npos);
  }
  ASSERT_EQ(record.warnings.size(), 3u);
  EXPECT_NE(record.warnings[0].find("step "), std::string::npos);
  const size_t skipped_from = record.rates.size() - 3;
  EXPECT_EQ(record.rates[skipped_from], record.rates[skipped_from + 2]) << "the schedule must not advance";
}

TEST(Trainer, RefusesToResumeOnOtherData) {
  test::TempDir dir;
  Config config = tiny_config(dir, kDevice);
  config.train.steps = 1;
  Trainer(config, "", {}).run();
  std::ofstream(config.train_data.paths[0], std::ios::app) << "more and more text than before";
  Trainer other(config, "", {});
  EXPECT_THROW(other.resume(), ConfigError);
}

TEST(Trainer, GeneratesFromTheSavedRun) {
  test::TempDir dir;
  Config config = tiny_config(dir, kNvme);
  config.train.steps = 60;
  const std::string folder = Trainer(config, "", {}).run().saved_folder;
  const std::string prompt = "in the beg";
  const std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  std::string text;
  generate(config, folder, tokens, 6, 0.0, 1, [&](int32_t token) {
    text.push_back(char(token));
    return true;
  });
  EXPECT_EQ(text, "inning");
}

}  // namespace
}  // namespace headrace
