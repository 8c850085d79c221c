// SPDX-License-Identifier: Apache-2.0
// kill -9 at random instants of a program that saves after every step: it always resumes, and ends with the
// bits of a run that nobody disturbed.
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "tests/cli/program.h"

namespace headrace::cli {
namespace {

TEST_F(Program, KilledTwentyTimesWhileSavingItAlwaysResumes) {
  write_config("run.toml");
  const std::vector<std::string> base = {
      "train", path("run.toml"),   "--resume", "--set", "train.steps=60", "--set", "checkpoint.every=1",
      "--set", "checkpoint.keep=2"};
  ASSERT_EQ(run(base).exit_code, 0);
  const std::vector<json> undisturbed = metrics("train", "loss");
  ASSERT_EQ(undisturbed.size(), 60u);
  fs::remove_all(path("saved"));
  fs::remove_all(path("log"));

  std::mt19937 random(20);
  int kills = 0;
  for (int attempt = 0; attempt < 200 && kills < 20; ++attempt) {
    const pid_t child = start(base);
    std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution(30, 400)(random)));
    kill(child, SIGKILL);
    const Outcome outcome = finish(child);
    if (outcome.exit_code == -SIGKILL) {
      ++kills;
      continue;
    }
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    fs::remove_all(path("saved"));  // it got to the end between two kills: once more from the beginning
  }
  ASSERT_EQ(kills, 20);
  const Outcome last = run(base);
  ASSERT_EQ(last.exit_code, 0) << last.err;
  std::map<uint64_t, double> losses;
  std::ifstream file(path("log/metrics.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const json object = json::parse(line, nullptr, false);  // a line may have been cut by a kill
    if (!object.is_discarded() && object["ev"] == "train") losses[object["step"]] = object["loss"];
  }
  ASSERT_EQ(losses.size(), 60u);
  for (uint64_t step = 1; step <= 60; ++step)
    EXPECT_EQ(losses[step], undisturbed[step - 1]) << "step " << step;
}

}  // namespace
}  // namespace headrace::cli
