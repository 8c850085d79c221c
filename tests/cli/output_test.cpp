// SPDX-License-Identifier: Apache-2.0
// What is checked before a training, and the line that a failure ends with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <new>
#include <system_error>

#include "cli/failure_text.h"
#include "cli/output_folders.h"
#include "headrace/error.h"

namespace headrace::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class OutputFolders : public ::testing::Test {
 protected:
  OutputFolders() : dir_(fs::temp_directory_path() / ("headrace_folders_" + std::to_string(getpid()))) {
    fs::create_directories(dir_);
  }
  ~OutputFolders() override { fs::remove_all(dir_); }
  fs::path dir_;
};

TEST_F(OutputFolders, AreMadeAndLeftEmpty) {
  prepare_folder("log.dir", (dir_ / "a/b").string());
  EXPECT_TRUE(fs::is_empty(dir_ / "a/b"));
  prepare_folder("log.dir", (dir_ / "a/b").string());
}

TEST_F(OutputFolders, AFileInTheirPlaceNamesTheKey) {
  std::ofstream(dir_ / "file") << "x";
  try {
    prepare_folder("checkpoint.dir", (dir_ / "file").string());
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("checkpoint.dir"), HasSubstr((dir_ / "file").string())));
  }
}

TEST_F(OutputFolders, ASavedRunWithoutRoomNamesKeyAndNumbers) {
  Config config;
  config.checkpoint_dir = dir_.string();
  Plan plan{};
  plan.param_count = 1000;
  EXPECT_NO_THROW(check_room_for_saved_run(plan, config));
  EXPECT_GE(saved_run_bytes(plan), 12000u);
  plan.param_count = uint64_t(1) << 50;  // 12 PiB
  try {
    check_room_for_saved_run(plan, config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("checkpoint.dir"), HasSubstr("free")));
  }
}

TEST(FailureText, NamesTheLimitBehindAnErrno) {
  const std::system_error thread(std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_THAT(failure_text(thread), HasSubstr("ulimit -u"));
  EXPECT_THAT(failure_text(IoError("open", "/x", EMFILE)), AllOf(HasSubstr("/x"), HasSubstr("ulimit -n")));
  EXPECT_THAT(failure_text(IoError("write", "/x", EFBIG)), HasSubstr("ulimit -f"));
  EXPECT_EQ(failure_text(Error("plain")), "plain");
}

TEST(FailureText, NamesTheLimitBehindTheCauseOfAnError) {
  try {
    try {
      throw IoError("write", "/x", EFBIG);
    } catch (const IoError&) {
      std::throw_with_nested(Error("saved elsewhere"));
    }
  } catch (const Error& error) {
    EXPECT_THAT(failure_text(error), AllOf(::testing::StartsWith("saved elsewhere"), HasSubstr("ulimit -f")));
  }
}

TEST(FailureText, OfABareOutOfMemoryNamesTheKeys) {
  EXPECT_THAT(failure_text(std::bad_alloc()),
              AllOf(HasSubstr("out of host memory"), HasSubstr("nvme.chunk_bytes and nvme.queue_depth")));
}

}  // namespace
}  // namespace headrace::cli
