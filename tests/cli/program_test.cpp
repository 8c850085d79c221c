// SPDX-License-Identifier: Apache-2.0
// The program from outside: exit codes, what goes to which stream, and a tiny run from start to stop and on.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/cli/program.h"

namespace headrace::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(Program, HelpAndVersionSucceedOnStdout) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"train", "--help"},
                                             {"plan", "--help"},
                                             {"generate", "--help"},
                                             {"doctor", "--help"},
                                             {"bench", "--help"},
                                             {"bench", "adam", "--help"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments[0];
    EXPECT_THAT(outcome.out, HasSubstr("Usage: headrace")) << arguments[0];
    EXPECT_EQ(outcome.err, "") << arguments[0];
  }
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, AllOf(StartsWith("headrace 0."), HasSubstr("liburing"), HasSubstr("scalar")));
}

TEST_F(Program, UsageErrorsEndWithTwoAndOneLine) {
  write_config("run.toml");
  std::ofstream(dir_ / "bad.toml") << "[train]\nstesp = 1\n";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"trian"},
           {"train"},
           {"train", path("run.toml"), "--bogus"},
           {"train", path("run.toml"), "--set", "train.stesp=1"},
           {"train", path("bad.toml")},
           {"train", path("absent.toml")},
           {"train", path("nvme")},
           {"plan", path("run.toml"), "--set", "model.heads=3"},
           {"plan", path("run.toml"), "--set", "model=3"},
           {"generate", path("saved"), "--prompt", "x", "--temperature", "-1"},
           {"generate", path("saved"), "--prompt", "x", "--temperature", "nan"},
           {"generate", path("saved"), "--prompt", "x", "--seed", "-1"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("headrace: "));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_THAT(run({"train", path("bad.toml")}).err,
              AllOf(HasSubstr("bad.toml:2:1"), HasSubstr("did you mean 'train.steps'?")));
}

TEST_F(Program, FailuresEndWithOneAndOneLine) {
  write_config("run.toml");
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"generate", path("saved"), "--prompt", "x"},
           {"plan", path("run.toml"), "--set", "device.memory=1MiB", "--set", "train.micro_batch=64"},
           {"doctor", path("absent")}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << arguments[1];
    if (arguments[0] != "doctor") {
      EXPECT_THAT(outcome.err, StartsWith("headrace: "));
    }
  }
}

TEST_F(Program, APlanOverBudgetNamesTheNumberAndTheKey) {
  write_config("run.toml");
  const Outcome outcome = run({"train", path("run.toml"), "--dry-run", "--set", "device.memory=1MiB", "--set",
                               "train.micro_batch=64"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("1048576 available"), HasSubstr("device.memory")));
  EXPECT_THAT(outcome.out, HasSubstr("too much"));
  EXPECT_FALSE(fs::exists(path("log")));  // nothing was started
}

TEST_F(Program, DryRunOpensTheDataAndMakesNothing) {
  write_config("run.toml");
  EXPECT_EQ(run({"train", path("run.toml"), "--dry-run"}).exit_code, 0);
  const std::string absent = path("absent");
  for (const std::string key : {"data.train", "data.valid"}) {
    const Outcome outcome =
        run({"train", path("run.toml"), "--dry-run", "--set", key + "=[\"" + absent + "\"]"});
    EXPECT_EQ(outcome.exit_code, 1) << key;
    EXPECT_THAT(outcome.err, HasSubstr(absent)) << key;
  }
  const Outcome none = run({"train", path("run.toml"), "--dry-run", "--set", "data.train=[]"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("data.train"));
  EXPECT_FALSE(fs::exists(path("log")));
}

TEST_F(Program, PlanPrintsJson) {
  write_config("run.toml");
  const json plan = json::parse(run({"plan", path("run.toml"), "--json"}).out);
  EXPECT_EQ(plan["fits"], true);
  // 256 x 32 embedding; 2 layers of q, o 32 x 32, k, v 16 x 32, gate, up, down 64 x 32, two norms; norm and
  // head.
  EXPECT_EQ(plan["param_count"],
            256 * 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32 + 2 * 32) + 32 + 256 * 32);
}

TEST_F(Program, PrintConfigIsAConfiguration) {
  write_config("run.toml");
  const Outcome printed = run({"train", path("run.toml"), "--print-config", "--set", "train.seed=9"});
  EXPECT_EQ(printed.exit_code, 0);
  std::ofstream(dir_ / "again.toml") << printed.out;
  EXPECT_EQ(run({"train", path("again.toml"), "--print-config"}).out, printed.out);
}

TEST_F(Program, ARunRecordsEveryStepAndGoesOnBitIdentically) {
  write_config("run.toml");
  const Outcome whole = run({"train", path("run.toml")});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, AllOf(HasSubstr("step 4/4"), HasSubstr("nvme -> host"), HasSubstr("validation loss"),
                               HasSubstr("step-0000000004")));
  const std::vector<json> losses = metrics("train", "loss");
  ASSERT_EQ(losses.size(), 4u);
  EXPECT_EQ(metrics("eval", "step"), std::vector<json>{4});
  EXPECT_TRUE(fs::is_empty(path("nvme")));

  fs::remove_all(path("saved"));
  ASSERT_EQ(
      run({"train", path("run.toml"), "--set", "checkpoint.every=2", "--set", "checkpoint.keep=0"}).exit_code,
      0);
  EXPECT_TRUE(fs::exists(path("log/metrics.jsonl.1")));
  fs::remove_all(path("saved/step-0000000004"));
  const Outcome resumed = run({"train", path("run.toml"), "--resume", "--set", "offload.weights=nvme"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(metrics("train", "step"), ElementsAre(1, 2, 3, 4, 3, 4));
  EXPECT_THAT(metrics("resume", "step"), ElementsAre(2));
  EXPECT_THAT(metrics("train", "loss"),
              ElementsAre(losses[0], losses[1], losses[2], losses[3], losses[2], losses[3]));
}

TEST_F(Program, NothingToResumeIsSaidAndStartsFromTheBeginning) {
  write_config("run.toml");
  const Outcome outcome = run({"train", path("run.toml"), "--resume", "--set", "train.steps=1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("nothing to resume"));
}

TEST_F(Program, TheFirstSignalSavesAndEndsWell) {
  write_config("run.toml");
  const pid_t child =
      start({"train", path("run.toml"), "--set", "train.steps=1000000", "--set", "train.log_every=1"});
  // The handler stands before the first step, so a step that is recorded shows that it is there.
  while (file_text(path("log/metrics.jsonl")).empty() && waitpid(child, nullptr, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kill(child, SIGINT);
  const Outcome outcome = finish(child);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("continue with: headrace train"));
  EXPECT_EQ(metrics("saved", "step"), std::vector<json>{metrics("train", "step").back()});
}

TEST_F(Program, GeneratesTheAskedNumberOfBytes) {
  write_config("run.toml");
  ASSERT_EQ(run({"train", path("run.toml")}).exit_code, 0);
  const Outcome outcome =
      run({"generate", path("saved"), "--prompt", "line", "--tokens", "8", "--temperature", "0"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("line"));
  EXPECT_EQ(outcome.out.size(), 4u + 8u + 1u);
}

}  // namespace
}  // namespace headrace::cli
