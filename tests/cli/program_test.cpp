// SPDX-License-Identifier: Apache-2.0
// The program from outside: exit codes, what goes to which stream, and a tiny run from start to stop and on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

namespace headrace::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string file_text(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Outcome {
  int exit_code;
  std::string out, err;
};

class Program : public ::testing::Test {
 protected:
  Program() : dir_(fs::temp_directory_path() / ("headrace_program_" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "nvme");
    std::ofstream text(dir_ / "text.txt");
    for (int i = 0; i < 2000; ++i)
      text << "line " << i * 7 % 1000 << " of a text that a tiny model can learn\n";
  }
  ~Program() override { fs::remove_all(dir_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (dir_ / name).string(); }

  /// A model of a few thousand parameters with its state on every tier.
  void write_config(const std::string& name) const {
    std::ofstream(dir_ / name)
        << "[model]\nlayers = 2\nhidden = 32\nheads = 2\nkv_heads = 1\nffn = 64\n"
        << "[data]\ntrain = [\"" << path("text.txt") << "\"]\nvalid = [\"" << path("text.txt")
        << "\"]\nseq_len = 32\n[train]\nsteps = 4\nmicro_batch = 2\neval_batches = 2\n"
        << "[device]\nkind = \"host\"\nmemory = \"64MiB\"\n"
        << "[offload]\nweights = \"host\"\noptimizer = \"nvme\"\nactivations = \"host\"\n"
        << "host_memory = \"64MiB\"\n[nvme]\npaths = [\"" << path("nvme") << "\"]\n[checkpoint]\ndir = \""
        << path("saved") << "\"\n[log]\ndir = \"" << path("log") << "\"\n";
  }

  pid_t start(const std::vector<std::string>& arguments) const {
    const pid_t child = fork();
    if (child != 0) return child;
    std::vector<char*> argv = {const_cast<char*>(HEADRACE_PROGRAM)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    dup2(open(path("out").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), STDOUT_FILENO);
    dup2(open(path("err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), STDERR_FILENO);
    execv(HEADRACE_PROGRAM, argv.data());
    _exit(127);
  }
  [[nodiscard]] Outcome finish(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return {code, file_text(path("out")), file_text(path("err"))};
  }
  [[nodiscard]] Outcome run(const std::vector<std::string>& arguments) const {
    return finish(start(arguments));
  }

  /// Values of `field` in the lines of metrics.jsonl whose "ev" is `event`.
  [[nodiscard]] std::vector<json> metrics(const std::string& event, const std::string& field) const {
    std::vector<json> values;
    std::ifstream file(path("log/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const json object = json::parse(line);
      if (object["ev"] == event) values.push_back(object[field]);
    }
    return values;
  }

  fs::path dir_;
};

TEST_F(Program, HelpAndVersionSucceedOnStdout) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"train", "--help"},
                                             {"plan", "--help"},
                                             {"generate", "--help"},
                                             {"doctor", "--help"}}) {
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
           {"plan", path("run.toml"), "--set", "model.heads=3"},
           {"generate", path("saved"), "--prompt", "x", "--temperature", "-1"}}) {
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
           {"train", path("absent.toml")},
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
