// SPDX-License-Identifier: Apache-2.0
// What a training keeps when something fails, and which folders it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "checkpoint/saved_run.h"
#include "headrace/error.h"
#include "tests/train/tiny_run.h"

namespace headrace {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

template <class E, class F>
std::string message_of(const F& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Trainer, HasItsCheckpointDirectoryForItself) {
  TempDir dir;
  const Config config = tiny_config(dir, kDevice);
  Trainer first(config, "", {});
  EXPECT_THAT(message_of<ConfigError>([&] { Trainer(config, "", {}); }),
              AllOf(HasSubstr("checkpoint.dir: " + config.checkpoint_dir),
                    HasSubstr("process " + std::to_string(::getpid()))));
  EXPECT_EQ(first.run().step, 8u);
}

TEST(Trainer, RefusesASavedRunItselfAsCheckpointDirectory) {
  TempDir dir;
  Config config = tiny_config(dir, kDevice);
  config.train.steps = 1;
  config.checkpoint_dir = Trainer(config, "", {}).run().saved_folder;
  EXPECT_THAT(message_of<ConfigError>([&] { Trainer(config, "", {}); }),
              AllOf(HasSubstr(config.checkpoint_dir), HasSubstr("name its parent folder")));
}

TEST(Trainer, SavesBeforeTheFinalEvaluation) {
  TempDir dir;
  Config config = tiny_config(dir, kDevice);
  config.train.eval_every = 4;
  std::vector<std::string> order;
  TrainerEvents events;
  events.on_eval = [&](const EvalMetrics& m) { order.push_back("eval " + std::to_string(m.step)); };
  events.on_saved = [&](const std::string&, uint64_t step) {
    order.push_back("saved " + std::to_string(step));
  };
  Trainer(config, "", events).run();
  EXPECT_THAT(order, testing::ElementsAre("eval 4", "saved 8", "eval 8"));
}

TEST(Trainer, AFailedEventKeepsTheStepsAndTellsWhere) {
  TempDir dir;
  const Config config = tiny_config(dir, kNvme);
  Record whole, cut;
  Trainer(config, "", whole.events()).run();
  fs::remove_all(config.checkpoint_dir);
  TrainerEvents events = cut.events();
  events.on_step = [&](const StepMetrics& m) {
    cut.losses.push_back(m.loss);
    if (m.step == 3) throw IoError("write", "/metrics", EFBIG);
  };
  try {
    Trainer(config, "", events).run();
    FAIL() << "the failure was swallowed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("/metrics"), HasSubstr(config.checkpoint_dir + "/step-0000000003")));
    EXPECT_THROW(std::rethrow_if_nested(error), IoError);
  }
  Trainer second(config, "", cut.events());
  ASSERT_TRUE(second.resume());
  second.run();
  EXPECT_EQ(cut.losses, whole.losses);
}

TEST(Trainer, ADataErrorKeepsTheStepsBefore) {
  TempDir dir;
  Config config = tiny_config(dir, kDevice);
  config.valid_data.paths.clear();
  config.train_data = {.paths = {dir.path() + "/raw"}, .format = TokenFormat::raw};
  std::vector<uint16_t> tokens(40 * 16 + 1, 7);
  tokens[200] = 999;  // beyond the vocabulary, read once in the ten steps of an epoch
  std::ofstream(config.train_data.paths[0], std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()), std::streamsize(tokens.size() * 2));
  config.train.steps = 10;
  Record record;
  const std::string message = message_of<Error>([&] { Trainer(config, "", record.events()).run(); });
  ASSERT_GT(record.losses.size(), 0u) << "the window came in the first step: choose another";
  EXPECT_THAT(message, AllOf(HasSubstr("999"), HasSubstr("saved in " + config.checkpoint_dir)));
  EXPECT_EQ(SavedRun::newest(config.checkpoint_dir, {})->state().attempted_steps, record.losses.size());
}

TEST(Trainer, EarlierSavedRunsStayUntilTheNewOneIsWhole) {
  TempDir dir;
  Config config = tiny_config(dir, kDevice);
  const std::string earlier = Trainer(config, "", {}).run().saved_folder;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  TrainerEvents events;
  events.on_step = [&](const StepMetrics&) {
    const rlimit limit{.rlim_cur = 10000, .rlim_max = before.rlim_max};  // no unit fits
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  config.train.steps = 2;
  EXPECT_THROW(Trainer(config, "", events).run(), IoError);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(fs::exists(earlier + "/manifest.json"));
  EXPECT_FALSE(fs::exists(config.checkpoint_dir + "/earlier-1"));
}

TEST(Trainer, WithNothingToResumeNamesTheRunsThatWereSetAside) {
  TempDir dir;
  const Config config = tiny_config(dir, kDevice);
  for (const char* name : {"/earlier-2", "/earlier-10", "/earlier-x"}) {
    fs::create_directories(config.checkpoint_dir + name);
  }
  std::vector<std::string> notices;
  TrainerEvents events;
  events.on_notice = [&](const std::string& line) { notices.push_back(line); };
  EXPECT_FALSE(Trainer(config, "", events).resume());
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0],
              HasSubstr(config.checkpoint_dir + "/earlier-2, " + config.checkpoint_dir + "/earlier-10;"));
}

TEST(Generate, RefusesAnotherModelThatNoShapeTells) {
  TempDir dir;
  Config config = tiny_config(dir, kDevice);
  config.train.steps = 1;
  const std::string folder = Trainer(config, "", {}).run().saved_folder;
  config.model.rope_theta = 123;
  const std::vector<int32_t> prompt{1};
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { generate(config, folder, prompt, 1, 0, 1, [](int32_t) { return true; }); }),
              AllOf(HasSubstr("another model"), HasSubstr("rope_theta 123")));
}

}  // namespace
}  // namespace headrace
