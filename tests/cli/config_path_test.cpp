// SPDX-License-Identifier: Apache-2.0
// Paths that a configuration cannot hold are refused when it is read, not when they are used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/config_file.h"

namespace headrace::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string refusal(const std::string& set) {
  try {
    const std::vector<std::string> sets{set};
    parse_config("", "run.toml", sets);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ConfigPath, ThatIsNotUtf8NamesItsKey) {
  // Latin-1, a continuation byte alone, an overlong '/', a surrogate, beyond U+10FFFF, cut short.
  for (const std::string bad :
       {"r\xe9sum\xe9", "\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    EXPECT_THAT(refusal("checkpoint.dir=" + bad), AllOf(HasSubstr("checkpoint.dir: "), HasSubstr("UTF-8")));
    EXPECT_THAT(refusal("log.dir=" + bad), AllOf(HasSubstr("log.dir: "), HasSubstr("UTF-8")));
    EXPECT_THAT(refusal("data.train=" + bad), AllOf(HasSubstr("data.train: "), HasSubstr("UTF-8")));
    EXPECT_THAT(refusal("nvme.paths=" + bad), AllOf(HasSubstr("nvme.paths: "), HasSubstr("UTF-8")));
  }
  EXPECT_EQ(refusal("checkpoint.dir=r\xc3\xa9sum\xc3\xa9/\xe6\xb0\xb4/\xf0\x9f\x92\xa7"), "accepted");
}

TEST(ConfigPath, WithNulNamesItsKey) {
  EXPECT_THAT(refusal("log.dir=\"a\\u0000b\""), AllOf(StartsWith("--set: log.dir: "), HasSubstr("NUL")));
  EXPECT_THAT(refusal("data.valid=[\"a\", \"b\\u0000\"]"),
              AllOf(StartsWith("--set: data.valid: "), HasSubstr("NUL")));
}

}  // namespace
}  // namespace headrace::cli
