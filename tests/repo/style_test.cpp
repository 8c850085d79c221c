// SPDX-License-Identifier: Apache-2.0
// What can be checked of CONTRIBUTING.md without judgement.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "source_tree.h"

namespace headrace::repo {
namespace {

const std::vector<std::string> kCode = {".h", ".cpp", ".cu", ".cuh", ".c", ".cmake", ".py", ".sh"};

TEST(Style, EverySourceSaysItsLicense) {
  const std::vector<SourceFile> files = source_files(kCode);
  EXPECT_GT(files.size(), 50u);
  for (const SourceFile& file : files) {
    const auto end = file.lines.begin() + std::min<ptrdiff_t>(3, ptrdiff_t(file.lines.size()));
    const bool found = std::any_of(file.lines.begin(), end, [](const std::string& line) {
      return line.find("SPDX-License-Identifier: Apache-2.0") != std::string::npos;
    });
    EXPECT_TRUE(found) << file.path;
  }
}

TEST(Style, NoFileIsLongerThan500Lines) {
  for (const SourceFile& file : source_files(kCode)) EXPECT_LE(file.lines.size(), 500u) << file.path;
}

TEST(Style, NoLineIsLongerThan110Columns) {
  for (const SourceFile& file : source_files({".h", ".cpp", ".cu", ".cuh"})) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      // Columns, not bytes: continuation bytes of UTF-8 take no room.
      const auto columns = std::ranges::count_if(
          file.lines[i], [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
      EXPECT_LE(columns, 110) << file.path << ":" << i + 1;
    }
  }
}

TEST(Style, NothingIsLeftForLater) {
  // Spelled in parts, so that this file does not find itself.
  const std::vector<std::string> words = {std::string("TO") + "DO", std::string("FIX") + "ME"};
  for (const SourceFile& file : source_files(kCode)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string& word : words) {
        EXPECT_EQ(file.lines[i].find(word), std::string::npos) << file.path << ":" << i + 1 << ": " << word;
      }
    }
  }
}

TEST(Style, NoFileHasADrawerName) {
  const std::regex drawer("(^|[/_.])(utils?|common|helpers?|misc|managers?)([/_.]|$)");
  for (const SourceFile& file : source_files(kCode)) {
    EXPECT_FALSE(std::regex_search(file.path, drawer)) << file.path;
  }
}

}  // namespace
}  // namespace headrace::repo
