// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/directory_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "headrace/error.h"
#include "tests/checkpoint/run_fixture.h"
#include "tests/data/temp_folder.h"

namespace headrace {
namespace {

using saved::DirectoryLock;
using test::TempFolder;
namespace fs = std::filesystem;

TEST(DirectoryLock, KeepsASecondHolderOutAndNamesFolderAndProcess) {
  const TempFolder dir;
  const DirectoryLock first(dir.path());
  ASSERT_TRUE(first.held());
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      const DirectoryLock second(dir.path());
      ADD_FAILURE() << "two holders";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key, "checkpoint.dir");
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr(dir.path() + " is in use"),
                                 testing::HasSubstr("(process " + std::to_string(::getpid()) + ")")));
    }
  }
}

TEST(DirectoryLock, IsFreeAfterItsHolderAndLeavesNothing) {
  const TempFolder dir;
  const std::string runs = dir / "a/b";
  { const DirectoryLock first(runs); }
  EXPECT_TRUE(fs::is_empty(runs));
  EXPECT_TRUE(DirectoryLock(runs).held());
}

TEST(DirectoryLock, OfAKilledProcessIsTakenOver) {
  const TempFolder dir;
  const pid_t child = ::fork();
  if (child == 0) {
    const DirectoryLock lock(dir.path());
    ::_exit(0);  // no destructor: as after a kill
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_FALSE(fs::is_empty(dir.path()));
  { EXPECT_TRUE(DirectoryLock(dir.path()).held()); }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(DirectoryLock, DoesNotHinderSavingAndRetention) {
  const TempFolder dir;
  const DirectoryLock lock(dir.path());
  for (const uint64_t step : {1, 2}) test::save(dir.path(), step, {});
  retain_newest(dir.path(), 1);
  EXPECT_EQ(SavedRun::newest(dir.path(), nullptr)->state().attempted_steps, 2u);
}

}  // namespace
}  // namespace headrace
