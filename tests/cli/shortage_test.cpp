// SPDX-License-Identifier: Apache-2.0
// A program that is started with too little: without its standard descriptors, with few threads or little
// address space, on drives with folders that cannot be cleaned.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cstdlib>

#include "tests/cli/program.h"

namespace headrace::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Shortage : public Program {
 protected:
  /// Starts the program without the descriptors.
  [[nodiscard]] Outcome run_without(const std::vector<int>& descriptors,
                                    const std::vector<std::string>& arguments) const {
    const pid_t child = fork();
    if (child == 0) {
      dup2(open(path("out").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), STDOUT_FILENO);
      dup2(open(path("err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), STDERR_FILENO);
      for (int other = 3; other < 64; ++other) close(other);
      for (const int descriptor : descriptors) close(descriptor);
      exec(arguments);
    }
    return finish(child);
  }
  /// Starts the program with a limit of its address space and a team of OpenMP threads.
  [[nodiscard]] Outcome run_limited(uint64_t bytes, const char* team,
                                    const std::vector<std::string>& arguments) const {
    const pid_t child = fork();
    if (child == 0) {
      dup2(open(path("out").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), STDOUT_FILENO);
      dup2(open(path("err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), STDERR_FILENO);
      setenv("OMP_NUM_THREADS", team, 1);
      const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
      setrlimit(RLIMIT_AS, &limit);
      exec(arguments);
    }
    return finish(child);
  }
};

TEST_F(Shortage, WithoutStandardDescriptorsNoFileOfTheRunGetsWhatIsPrinted) {
  write_config("run.toml");
  for (const std::vector<int>& missing :
       std::vector<std::vector<int>>{{STDOUT_FILENO}, {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}}) {
    fs::remove_all(path("log"));
    fs::remove_all(path("saved"));
    const Outcome outcome = run_without(missing, {"train", path("run.toml"), "--set", "train.log_every=1"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(metrics("train", "step").size(), 4u);  // and every line of the file is JSON
    EXPECT_EQ(metrics_lines(), 6u);                  // 4 steps, a validation, a saved run
    if (missing.size() > 1) continue;
    EXPECT_THAT(outcome.err, HasSubstr("standard output could not be written (Bad file descriptor)"));
  }
  EXPECT_EQ(run_without({STDOUT_FILENO}, {"plan", path("run.toml")}).exit_code, 1);
}

TEST_F(Shortage, ATeamThatCannotBeStartedIsOneLineThatNamesTheLimitsAndLeavesNothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow memory does not fit a limit of the address space";
#endif
  write_config("run.toml");
  // 300 stacks of 8 MiB are more than 2 GiB.
  const Outcome outcome = run_limited(uint64_t(2) << 30, "300", {"train", path("run.toml")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("OMP_NUM_THREADS"), HasSubstr("ulimit -u"), HasSubstr("pids.max"),
                                 HasSubstr("ulimit -v"), Not(HasSubstr("libgomp"))));
  EXPECT_TRUE(fs::is_empty(path("nvme")));
}

TEST_F(Shortage, AddressSpaceThatDoesNotHoldThePlanNamesTheLimitAndTheKeys) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow memory does not fit a limit of the address space";
#endif
  write_config("run.toml");
  const Outcome outcome =
      run_limited(uint64_t(2) << 30, "1", {"train", path("run.toml"), "--set", "nvme.chunk_bytes=256MiB"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("ulimit -v, now 2"), HasSubstr("nvme.chunk_bytes")));
  EXPECT_TRUE(fs::is_empty(path("nvme")));
}

TEST_F(Shortage, CleaningGoesOnAfterAFolderThatCannotBeRemoved) {
  for (const std::string name : {"nvme/headrace-a", "nvme/headrace-b"}) {
    fs::create_directory(path(name));
    std::ofstream(path(name + "/owner")) << "pid=1\nstarted=1\n";
    std::ofstream(path(name + "/weights")) << "x";
  }
  fs::create_directory(path("nvme/headrace-a/kept"));
  const Outcome outcome = run({"doctor", "--clean", path("nvme")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("remove " + path("nvme/headrace-a") + " by hand"));
  EXPECT_THAT(outcome.out, HasSubstr("removed  " + path("nvme/headrace-b")));
  EXPECT_TRUE(fs::exists(path("nvme/headrace-a/weights")));
  EXPECT_FALSE(fs::exists(path("nvme/headrace-b")));
}

}  // namespace
}  // namespace headrace::cli
