// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/metrics_file.h"
#include "cli/metrics_line.h"
#include "headrace/error.h"

namespace headrace::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;

StepMetrics sample() {
  StepMetrics metrics;
  metrics.step = 3;
  metrics.tokens = 4096;
  metrics.loss = 2.1234567890123457;
  metrics.lr = 3e-4;
  metrics.grad_norm = 1.5;
  metrics.step_ms = 250;
  metrics.tokens_per_s = 4096;
  metrics.delta.link[size_t(Link::nvme_read)] = {.bytes = 3'000'000'000, .busy_ns = 1'500'000'000};
  metrics.delta.wait_ns[size_t(WaitCause::optimizer)] = 7'500'000;
  metrics.delta.peak_device_bytes = 11;
  metrics.delta.peak_pinned_bytes = 12;
  metrics.delta.peak_nvme_bytes = 13;
  metrics.peak_rss_bytes = 14;
  return metrics;
}

TEST(TrainLine, CarriesEveryField) {
  const std::string line = train_line(sample());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const json object = json::parse(line);
  EXPECT_EQ(object["ev"], "train");
  EXPECT_EQ(object["step"], 3);
  EXPECT_EQ(object["tokens"], 4096);
  EXPECT_EQ(object["loss"].get<double>(), 2.1234567890123457);  // every bit
  EXPECT_EQ(object["lr"].get<double>(), 3e-4);
  EXPECT_EQ(object["grad_norm"], 1.5);
  EXPECT_EQ(object["skipped"], false);
  EXPECT_EQ(object["skipped_steps"], 0);
  EXPECT_EQ(object["step_ms"], 250.0);
  EXPECT_EQ(object["tokens_per_s"], 4096.0);
  EXPECT_EQ(object["nvme_read"]["bytes"], 3'000'000'000);
  EXPECT_EQ(object["nvme_read"]["gb_per_s"], 2.0);  // 3e9 bytes in 1.5 s
  EXPECT_EQ(object["nvme_write"]["bytes"], 0);
  EXPECT_EQ(object["nvme_write"]["gb_per_s"], 0.0);  // nothing moved: zero, not 0/0
  EXPECT_TRUE(object.contains("h2d") && object.contains("d2h"));
  EXPECT_EQ(object["wait_ms"]["optimizer"], 7.5);
  EXPECT_TRUE(object["wait_ms"].contains("nvme") && object["wait_ms"].contains("copy") &&
              object["wait_ms"].contains("comm"));
  EXPECT_EQ(object["peak_bytes"], json::parse(R"({"device": 11, "pinned": 12, "nvme": 13, "rss": 14})"));
}

TEST(TrainLine, NonFiniteNumbersAreNull) {
  StepMetrics metrics = sample();
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  metrics.skipped = true;
  const json object = json::parse(train_line(metrics));
  EXPECT_TRUE(object["loss"].is_null());
  EXPECT_TRUE(object["grad_norm"].is_null());
  EXPECT_EQ(object["skipped"], true);
}

TEST(OtherLines, AreObjectsOfTheirOwnKind) {
  EXPECT_EQ(json::parse(eval_line({.step = 5, .loss = 1.25, .tokens = 64})),
            json::parse(R"({"ev": "eval", "step": 5, "valid_loss": 1.25, "valid_tokens": 64})"));
  EXPECT_EQ(json::parse(resume_line(7)), json::parse(R"({"ev": "resume", "step": 7})"));
  EXPECT_EQ(json::parse(saved_line(7, "a\"b\xff"))["ev"], "saved");
}

class MetricsFileTest : public ::testing::Test {
 protected:
  MetricsFileTest() : dir_(fs::temp_directory_path() / ("headrace_metrics_" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
  }
  ~MetricsFileTest() override { fs::remove_all(dir_); }

  std::vector<std::string> lines(const std::string& name) const {
    std::ifstream file(dir_ / name);
    std::vector<std::string> read;
    for (std::string line; std::getline(file, line);) read.push_back(line);
    return read;
  }
  void append(bool resumed, std::string_view line) const { MetricsFile(dir_.string(), resumed).append(line); }

  fs::path dir_;
};

TEST_F(MetricsFileTest, EveryLineIsOnDiskAtOnce) {
  MetricsFile file((dir_ / "deep" / "er").string(), false);
  file.append("one");
  EXPECT_THAT(lines("deep/er/metrics.jsonl"), ElementsAre("one"));
  file.append("two");
  EXPECT_THAT(lines("deep/er/metrics.jsonl"), ElementsAre("one", "two"));
}

TEST_F(MetricsFileTest, AFreshRunSetsOlderFilesAside) {
  append(false, "first");
  append(false, "second");
  append(false, "third");
  EXPECT_THAT(lines("metrics.jsonl"), ElementsAre("third"));
  EXPECT_THAT(lines("metrics.jsonl.1"), ElementsAre("first"));
  EXPECT_THAT(lines("metrics.jsonl.2"), ElementsAre("second"));
}

TEST_F(MetricsFileTest, AResumedRunAppendsWithoutTheTornLine) {
  append(false, "whole");
  std::ofstream(dir_ / "metrics.jsonl", std::ios::app) << "{\"ev\": \"tr";
  append(true, "next");
  EXPECT_THAT(lines("metrics.jsonl"), ElementsAre("whole", "next"));
  EXPECT_FALSE(fs::exists(dir_ / "metrics.jsonl.1"));
}

TEST_F(MetricsFileTest, AResumedRunWithoutAFileStartsOne) {
  append(true, "only");
  EXPECT_THAT(lines("metrics.jsonl"), ElementsAre("only"));
}

TEST(MetricsFile, OfAResumedRunMustBeARegularFile) {
  const fs::path dir = fs::temp_directory_path() / ("headrace_special_" + std::to_string(getpid()));
  for (const bool pipe : {true, false}) {
    fs::remove_all(dir);
    fs::create_directories(dir);
    const std::string path = (dir / "metrics.jsonl").string();
    if (pipe) {
      ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    } else {
      fs::create_directory(path);
    }
    try {
      const MetricsFile file(dir.string(), true);
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("log.dir: " + path + " is not a regular file"));
    }
  }
  fs::remove_all(dir);
}

}  // namespace
}  // namespace headrace::cli
