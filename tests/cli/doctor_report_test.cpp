// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "headrace/adam.h"

namespace headrace::cli {
namespace {

using ::testing::HasSubstr;

TEST(ChosenWord, IsTheOneInBrackets) {
  EXPECT_EQ(chosen_word("always [madvise] never"), "madvise");
  EXPECT_EQ(chosen_word("[always]"), "always");
  EXPECT_EQ(chosen_word(""), "");
  EXPECT_EQ(chosen_word("]odd["), "");
}

TEST(FindingText, PutsTheRemedyOnALineOfItsOwn) {
  EXPECT_EQ(finding_text({"cpu", FindingState::ok, "scalar"}), "ok       cpu             scalar\n");
  EXPECT_THAT(finding_text({"cpu", FindingState::missing, "x", "buy one"}),
              HasSubstr("\n                         -> buy one\n"));
}

TEST(ExamineMachine, SaysSomethingOfEveryPart) {
  const std::vector<Finding> findings = examine_machine();
  for (const char* what : {"io_uring", "locked memory", "huge pages", "cpu", "gpu"}) {
    const auto found = std::ranges::find(findings, what, &Finding::what);
    ASSERT_NE(found, findings.end()) << what;
    EXPECT_FALSE(found->facts.empty()) << what;
    EXPECT_TRUE(found->state == FindingState::ok || !found->remedy.empty()) << what;
  }
  const auto cpu = std::ranges::find(findings, "cpu", &Finding::what);
  EXPECT_THAT(cpu->facts, HasSubstr(adam::isa_name(adam::active_isa())));
}

TEST(ExaminePath, AFolderThatIsNotThereIsMissing) {
  const std::vector<Finding> findings = examine_path("/nonexistent/folder");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].state, FindingState::missing);
  EXPECT_THAT(findings[0].facts, HasSubstr("/nonexistent/folder"));
}

TEST(ExaminePath, AWritableFolderTellsItsSpaceAndAlignment) {
  const auto dir = std::filesystem::temp_directory_path() / ("headrace_doctor_" + std::to_string(getpid()));
  std::filesystem::create_directory(dir);
  const std::vector<Finding> findings = examine_path(dir.string());
  EXPECT_TRUE(std::filesystem::is_empty(dir));  // looking leaves nothing behind
  std::filesystem::remove_all(dir);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_THAT(findings[0].facts, HasSubstr("free"));
  EXPECT_EQ(findings[1].what, "O_DIRECT");
}

}  // namespace
}  // namespace headrace::cli
