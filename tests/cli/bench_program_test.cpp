// SPDX-License-Identifier: Apache-2.0
// `headrace bench` from outside: what a command line may ask for, and the file of results. Sizes are the
// smallest there are, speeds are not looked at.
#include <gmock/gmock.h>

#include "tests/cli/program.h"

namespace headrace::cli {
namespace {

using ::testing::HasSubstr;

class BenchProgram : public Program {
 protected:
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_ / "results"))
      names.push_back(entry.path().filename());
    return names;
  }
  [[nodiscard]] Outcome measure(const std::string& json) const {
    fs::create_directory(dir_ / "results");
    return run(
        {"bench", "adam", "--params", "1048576", "--threads", "1", "--variant", "fp32_28b", "--json", json});
  }
};

TEST_F(BenchProgram, WhatCannotBeMeasuredIsAUsageErrorThatNamesWhatCan) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"bench"}, "subcommand"},
      {{"bench", "adam", "--variant", "fp32"}, "fp32_28b, split_26b, bf16m_24b, split_bf16mv_18b, q8"},
      {{"bench", "adam", "--threads", "0"}, "takes 1 to"},
      {{"bench", "adam", "--threads", "100000"}, "takes 1 to"},
      {{"bench", "adam", "--params", "1048575"}, "caches"},
      {{"bench", "adam", "--params", "-1"}, "--params"}};
  for (const auto& [arguments, text] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

TEST_F(BenchProgram, TheResultsAreOneCompleteFileNewOrInPlaceOfAnOldOne) {
  for (int round = 0; round < 2; ++round) {
    const Outcome outcome = measure(path("results/adam.json"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("fp32_28b"));
    EXPECT_THAT(files(), ::testing::ElementsAre("adam.json"));
    EXPECT_EQ(json::parse(file_text(path("results/adam.json")))["rows"][0]["variant"], "fp32_28b");
  }
}

TEST_F(BenchProgram, ResultsThatCannotBeWrittenAreToldBeforeMeasuring) {
  for (const std::string& target : {path("absent/adam.json"), path("nvme"), std::string("/dev/null")}) {
    const Outcome outcome = measure(target);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, HasSubstr(target));
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace headrace::cli
