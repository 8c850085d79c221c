// SPDX-License-Identifier: Apache-2.0
// A program whose surroundings fail it: closed pipes, signals, full files, folders that are not there.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "tests/cli/program.h"

namespace headrace::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

class Disturbed : public Program {
 protected:
  /// Starts the program with its standard output closed at the other end.
  [[nodiscard]] Outcome run_without_reader(const std::vector<std::string>& arguments) const {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    close(ends[0]);
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(open(path("err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), STDERR_FILENO);
      exec(arguments);
    }
    close(ends[1]);
    return finish(child);
  }
  [[nodiscard]] bool running(pid_t child) const { return waitpid(child, nullptr, WNOHANG) == 0; }
  void wait_for_first_step(pid_t child) const {
    while (file_text(path("log/metrics.jsonl")).empty() && running(child)) nap();
  }
};

TEST_F(Disturbed, ATrainingOutlivesItsReader) {
  write_config("run.toml");
  const Outcome outcome = run_without_reader({"train", path("run.toml"), "--set", "train.log_every=1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("standard output could not be written (Broken pipe)"));
  EXPECT_EQ(metrics("saved", "step"), std::vector<json>{4});
  EXPECT_TRUE(fs::exists(path("saved/step-0000000004/manifest.json")));
}

TEST_F(Disturbed, CommandsWhoseProductIsTheirOutputFailWithoutAReader) {
  write_config("run.toml");
  ASSERT_EQ(run({"train", path("run.toml")}).exit_code, 0);
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"--version"},
                                             {"plan", path("run.toml")},
                                             {"plan", path("run.toml"), "--json"},
                                             {"train", path("run.toml"), "--print-config"},
                                             {"train", path("run.toml"), "--dry-run"},
                                             {"generate", path("saved"), "--prompt", "x"},
                                             {"doctor", path("nvme")}}) {
    const Outcome outcome = run_without_reader(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << arguments[0];
    EXPECT_THAT(outcome.err, HasSubstr("standard output could not be written")) << arguments[0];
  }
  EXPECT_TRUE(fs::is_empty(path("nvme")));
}

TEST_F(Disturbed, AHangUpSavesAndEndsWell) {
  write_config("run.toml");
  const pid_t child = start({"train", path("run.toml"), "--set", "train.steps=1000000"});
  wait_for_first_step(child);
  kill(child, SIGHUP);
  const Outcome outcome = finish(child);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(metrics("saved", "step"), std::vector<json>{metrics("train", "step").back()});
}

TEST_F(Disturbed, AHangUpThatWasIgnoredFromTheStartStaysIgnored) {
  write_config("run.toml");
  std::signal(SIGHUP, SIG_IGN);
  const pid_t child = start({"train", path("run.toml"), "--set", "train.steps=1000000"});
  std::signal(SIGHUP, SIG_DFL);
  wait_for_first_step(child);
  kill(child, SIGHUP);
  const size_t steps = metrics_lines();
  while (metrics_lines() < steps + 20 && running(child)) nap();
  EXPECT_GE(metrics_lines(), steps + 20);
  kill(child, SIGTERM);
  EXPECT_EQ(finish(child).exit_code, 0);
}

TEST_F(Disturbed, ASignalDuringValidationIsAnsweredBetweenItsBatches) {
  write_config("run.toml");
  const pid_t child = start({"train", path("run.toml"), "--set", "train.steps=1", "--set",
                             "train.eval_batches=1000000000", "--set", "data.seq_len=1"});
  wait_for_first_step(child);
  nap();
  kill(child, SIGTERM);
  const Outcome outcome = finish(child);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(metrics("eval", "step").empty()) << "a part of a validation is not one";
  EXPECT_EQ(metrics("saved", "step"), std::vector<json>{1});
}

TEST_F(Disturbed, AFileSizeLimitIsOneLineAndLeavesNothing) {
  write_config("run.toml");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{.rlim_cur = 50000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const pid_t child = start({"train", path("run.toml"), "--set", "offload.optimizer=host"});
  setrlimit(RLIMIT_FSIZE, &before);
  const Outcome outcome = finish(child);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AllOf(StartsWith("headrace: "), HasSubstr("ulimit -f")));
  EXPECT_TRUE(fs::is_empty(path("saved")));
}

TEST_F(Disturbed, GenerationEndsBetweenTokensAndCleansUp) {
  write_config("run.toml");
  ASSERT_EQ(run({"train", path("run.toml")}).exit_code, 0);
  fs::remove(path("out"));  // of the training
  const pid_t child = start({"generate", path("saved"), "--prompt", "line", "--tokens", "1000000000"});
  while (file_text(path("out")).size() < 6 && running(child)) nap();
  kill(child, SIGINT);
  EXPECT_EQ(finish(child).exit_code, 0);
  EXPECT_TRUE(fs::is_empty(path("nvme")));
}

TEST_F(Disturbed, GenerationWithoutItsDrivesPrintsNoPromptAndSaysWhatToDo) {
  write_config("run.toml");
  ASSERT_EQ(run({"train", path("run.toml")}).exit_code, 0);
  fs::remove_all(path("nvme"));
  const Outcome outcome = run({"generate", path("saved"), "--prompt", "line"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(path("nvme")), HasSubstr("--set offload.optimizer=host")));
}

TEST_F(Disturbed, FoldersForResultsAreProvenBeforeTheFirstStep) {
  write_config("run.toml");
  for (const std::string key : {"checkpoint.dir", "log.dir"}) {
    const Outcome outcome = run({"train", path("run.toml"), "--set", key + "=" + path("text.txt")});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(key), HasSubstr(path("text.txt"))));
  }
  EXPECT_FALSE(fs::exists(path("log/metrics.jsonl")));
}

TEST_F(Disturbed, APlanNeedsNoDrivesButADryRunDoes) {
  write_config("run.toml");
  fs::remove_all(path("nvme"));
  const Outcome plan = run({"plan", path("run.toml")});
  EXPECT_EQ(plan.exit_code, 0);
  EXPECT_THAT(plan.err, AllOf(StartsWith("headrace: note: nvme.paths"), HasSubstr(path("nvme"))));
  EXPECT_EQ(run({"train", path("run.toml"), "--dry-run"}).exit_code, 1);
}

TEST_F(Disturbed, TheConfigurationOfTheReadmeCanBePlanned) {
  const std::string readme = file_text(HEADRACE_SOURCE_DIR "/README.md");
  const size_t begin = readme.find("```toml\n") + 8;
  std::ofstream(dir_ / "readme.toml") << readme.substr(begin, readme.find("```", begin) - begin);
  const Outcome outcome = run({"plan", path("readme.toml")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("parameters; weights on host, optimizer on nvme"));
}

TEST_F(Disturbed, AnotherModelOrDamagedWeightsAreNotContinued) {
  write_config("run.toml");
  ASSERT_EQ(run({"train", path("run.toml")}).exit_code, 0);
  // Not to be seen in any tensor's shape.
  const Outcome other = run({"train", path("run.toml"), "--resume", "--set", "model.rope_theta=20000"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err,
              AllOf(HasSubstr("model"), HasSubstr("rope_theta 10000"), HasSubstr("rope_theta 20000")));

  std::fstream unit(path("saved/step-0000000004/unit-0000.bin"),
                    std::ios::in | std::ios::out | std::ios::binary);
  unit.put(char(unit.peek() ^ 1));
  unit.close();
  const Outcome damaged = run({"train", path("run.toml"), "--resume"});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.err, HasSubstr("remove " + path("saved/step-0000000004")));
}

}  // namespace
}  // namespace headrace::cli
