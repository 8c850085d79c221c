// SPDX-License-Identifier: Apache-2.0
// Saving while things go wrong: kills, full disks, several processes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "checkpoint/file.h"
#include "checkpoint/saved_run.h"
#include "headrace/error.h"
#include "tests/checkpoint/run_fixture.h"
#include "tests/data/temp_folder.h"

namespace headrace {
namespace {

using test::TempFolder;
using testing::ElementsAre;
namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// Runs `body` in a child whose exit code is what it returns; an exception makes it 99.
template <class F>
pid_t in_child(const F& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int code = 99;
  try {
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  }
  ::_exit(code);
}

int exit_code(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Kill, AtAnyInstantLeavesTheNewestCompleteRun) {
  const TempFolder dir;
  const auto units = test::small_model();
  std::mt19937 random(7);
  uint64_t step = 1;
  int cut_short = 0;
  const auto began = std::chrono::steady_clock::now();
  test::save(dir.path(), step, units);
  // Instants over two and a half saves, however fast the disk is.
  const std::chrono::duration<double> one_save = std::chrono::steady_clock::now() - began;
  std::uniform_real_distribution<double> instant(0.02, 2.5);
  for (int kill = 0; kill < 24; ++kill) {
    const pid_t child = in_child([&] {
      for (uint64_t next = step + 1;; ++next) {
        test::save(dir.path(), next, units);
        retain_newest(dir.path(), 2);
      }
      return 0;
    });
    std::this_thread::sleep_for(one_save * instant(random));
    ::kill(child, SIGKILL);
    ASSERT_EQ(exit_code(child), -SIGKILL);

    for (const std::string& name : names_in(dir.path())) {
      if (name.starts_with(".tmp-")) {
        ++cut_short;
      } else {
        ASSERT_NO_THROW(SavedRun::open(dir / name)) << "half saved or half removed";
      }
    }
    std::vector<std::string> warnings;
    const auto run = SavedRun::newest(dir.path(), [&](const std::string& line) { warnings.push_back(line); });
    ASSERT_TRUE(run.has_value());
    EXPECT_THAT(warnings, testing::IsEmpty());
    ASSERT_GE(run->state().attempted_steps, step) << "a finished save was lost";
    step = run->state().attempted_steps;
    ASSERT_TRUE(test::holds(*run, step, units, DType::bf16));
    retain_newest(dir.path(), 2);
    for (const std::string& name : names_in(dir.path())) ASSERT_TRUE(name.starts_with("step-")) << name;
  }
  EXPECT_GT(step, 1u) << "no save was ever finished: the test has shown nothing";
  EXPECT_GT(cut_short, 0) << "no kill hit a save: the test has shown nothing";
}

TEST(Processes, SavingOneStepTogetherBothSucceed) {
  const auto units = test::small_model();
  for (int round = 0; round < 8; ++round) {
    const TempFolder dir;
    int gate[2];
    ASSERT_EQ(::pipe(gate), 0);
    const auto save_after_gate = [&] {
      ::close(gate[1]);
      char byte;
      (void)!::read(gate[0], &byte, 1);  // returns when the parent closes its end
      return test::save(dir.path(), 40, units) == dir / "step-0000000040" ? 0 : 1;
    };
    const pid_t first = in_child(save_after_gate), second = in_child(save_after_gate);
    ::close(gate[0]);
    ::close(gate[1]);
    EXPECT_EQ(exit_code(first), 0);
    EXPECT_EQ(exit_code(second), 0);
    EXPECT_THAT(names_in(dir.path()), ElementsAre("step-0000000040"));
    EXPECT_TRUE(test::holds(SavedRun::open(dir / "step-0000000040"), 40, units, DType::bf16));
  }
}

TEST(Processes, TheOneThatFinishedMeanwhileStands) {
  const TempFolder dir;
  const auto units = test::small_model();
  SavedRunWriter slow(dir.path(), test::state_at(8), state_format(DType::bf16), "slow");
  test::add_units(slow, 8, units, DType::bf16);
  test::save(dir.path(), 8, units, DType::bf16, "fast");
  EXPECT_EQ(slow.finish(), dir / "step-0000000008");
  EXPECT_EQ(SavedRun::open(dir / "step-0000000008").config_toml(), "fast");
  EXPECT_THAT(names_in(dir.path()), ElementsAre("step-0000000008"));
}

TEST(Save, ReplacesAnOlderRunOfTheSameStepAndADamagedOne) {
  const TempFolder dir;
  const auto units = test::small_model();
  const std::string folder = test::save(dir.path(), 8, units, DType::bf16, "old");
  test::save(dir.path(), 8, units, DType::bf16, "new");
  EXPECT_EQ(SavedRun::open(folder).config_toml(), "new");
  test::save(dir.path(), 8, units, DType::bf16, "new");  // the same again: nothing to do
  fs::resize_file(folder + "/unit-0000.bin", 5);
  test::save(dir.path(), 8, units, DType::bf16, "new");
  EXPECT_TRUE(test::holds(SavedRun::open(folder), 8, units, DType::bf16));
  EXPECT_THAT(names_in(dir.path()), ElementsAre("step-0000000008"));
}

TEST(Save, WithoutFinishLeavesNothing) {
  const TempFolder dir;
  const std::string runs = dir / "a/b";
  {
    SavedRunWriter writer(runs, test::state_at(8), state_format(DType::bf16), "");
    test::add_units(writer, 8, test::small_model(), DType::bf16);
    EXPECT_EQ(names_in(runs).size(), 1u);
    EXPECT_FALSE(SavedRun::newest(runs, nullptr).has_value());
  }
  EXPECT_THAT(names_in(runs), testing::IsEmpty());
}

TEST(Save, CallsBackWhenAllIsWrittenAndNothingHasTheName) {
  const TempFolder dir;
  SavedRunWriter writer(dir.path(), test::state_at(8), state_format(DType::bf16), "");
  test::add_units(writer, 8, test::small_model(), DType::bf16);
  bool called = false;
  const std::string folder = writer.finish([&] {
    called = true;
    ASSERT_EQ(names_in(dir.path()).size(), 1u);
    EXPECT_TRUE(fs::exists(dir / (names_in(dir.path())[0] + "/manifest.crc32c")));
    EXPECT_FALSE(SavedRun::newest(dir.path(), nullptr).has_value());
  });
  EXPECT_TRUE(called);
  EXPECT_TRUE(test::holds(SavedRun::open(folder), 8, test::small_model(), DType::bf16));
}

/// Saves into `dir`, where it must fail: 0 when that is an IoError with this errno and a path of ours.
int failing_save(const std::string& dir, int expected_errno) {
  try {
    test::save(dir, 2, test::small_model());
  } catch (const IoError& error) {
    const bool right =
        error.error_code == expected_errno && error.path.find("unit-0000.bin") != std::string::npos;
    if (!right) std::fprintf(stderr, "child: %s\n", error.what());
    return right ? 0 : 1;
  }
  return 2;
}

TEST(Full, FileSizeLimitIsAnIoErrorAndTheRunBeforeStands) {
  const TempFolder dir;
  const auto units = test::small_model();
  test::save(dir.path(), 1, units);
  const pid_t child = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};  // unit-0000.bin has 1.8 MB
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 3;
    return failing_save(dir.path(), EFBIG);
  });
  EXPECT_EQ(exit_code(child), 0);
  EXPECT_THAT(names_in(dir.path()), ElementsAre("step-0000000001"));
  EXPECT_TRUE(test::holds(*SavedRun::newest(dir.path(), nullptr), 1, units, DType::bf16));
}

TEST(Full, AWriteThatOnlyFitsInPartIsAnIoErrorAtTheRest) {
  const TempFolder dir;
  const pid_t child = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 5000, .rlim_max = 5000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 3;
    saved::File file = saved::File::create(dir / "file");
    try {
      file.write(1000, std::vector<std::byte>(9000));  // the kernel takes 4000 of these
    } catch (const IoError& error) {
      return error.error_code == EFBIG && error.offset == 5000 && error.bytes == 5000 ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(exit_code(child), 0);
}

TEST(Full, DiskIsAnIoErrorAndTheRunBeforeStands) {
  const TempFolder dir;
  if (::mount("none", dir.path().c_str(), "tmpfs", 0, "size=3m") != 0) {
    GTEST_SKIP() << "a small tmpfs needs the right to mount";
  }
  const auto units = test::small_model();
  test::save(dir.path(), 1, units);  // 1.8 of 3 MB
  EXPECT_EQ(failing_save(dir.path(), ENOSPC), 0);
  EXPECT_THAT(names_in(dir.path()), ElementsAre("step-0000000001"));
  EXPECT_TRUE(test::holds(*SavedRun::newest(dir.path(), nullptr), 1, units, DType::bf16));
  EXPECT_EQ(::umount2(dir.path().c_str(), MNT_DETACH), 0);
}

TEST(Retention, IsByNumberAndNotByString) {
  const TempFolder dir;
  const std::vector<test::Unit> none;
  std::vector<std::string> expected;
  for (uint64_t step = 9000; step <= 9900; step += 100) {
    test::save(dir.path(), step, none);
    if (step != 9000) expected.push_back("step-000000" + std::to_string(step));
  }
  test::save(dir.path(), 10000, none);
  expected.push_back("step-0000010000");
  retain_newest(dir.path(), 0);
  EXPECT_EQ(names_in(dir.path()).size(), 11u);
  retain_newest(dir.path(), 10);
  EXPECT_EQ(names_in(dir.path()), expected);
  // Names without leading zeros sort the other way round as strings.
  for (const std::string& name : names_in(dir.path())) {
    fs::rename(dir / name, dir / ("step-" + std::to_string(std::stoull(name.substr(5)))));
  }
  retain_newest(dir.path(), 1);
  EXPECT_THAT(names_in(dir.path()), ElementsAre("step-10000"));
}

TEST(Retention, DamagedRunsDoNotPushGoodOnesOut) {
  const TempFolder dir;
  const std::vector<test::Unit> none;
  for (const uint64_t step : {1, 2, 3, 4}) test::save(dir.path(), step, none);
  fs::remove(dir / "step-0000000004/manifest.json");
  retain_newest(dir.path(), 2);
  EXPECT_THAT(names_in(dir.path()), ElementsAre("step-0000000002", "step-0000000003", "step-0000000004"));
}

TEST(Retention, TakesTemporaryFoldersOfDeadProcessesOnly) {
  const TempFolder dir;
  const std::vector<test::Unit> none;
  const pid_t child = in_child([&] {
    const SavedRunWriter cut(dir.path(), test::state_at(5), state_format(DType::f32), "");
    ::_exit(0);  // no destructor: as after a kill
    return 1;
  });
  ASSERT_EQ(exit_code(child), 0);
  SavedRunWriter alive(dir.path(), test::state_at(6), state_format(DType::f32), "");
  ASSERT_EQ(names_in(dir.path()).size(), 2u);
  retain_newest(dir.path(), 1);
  ASSERT_EQ(names_in(dir.path()).size(), 1u);
  EXPECT_EQ(alive.finish(), dir / "step-0000000006");
  retain_newest(dir / "missing", 1);
}

TEST(Retention, LeavesTemporaryFoldersOfOtherNames) {
  const TempFolder dir;
  const std::vector<std::string> of_others{".tmp-",
                                           ".tmp-mine",
                                           ".tmp-1-00000000",
                                           ".tmp-step-5-1-00000000",
                                           ".tmp-step-0000000005",
                                           ".tmp-step-0000000005-12-backup01",
                                           ".tmp-step-0000000005-12-0000000"};
  for (const std::string& name : of_others) fs::create_directory(dir / name);
  for (const char* ours : {".tmp-step-0000000005-12-0123cdef", ".tmp-removed-step-0000000005-12-0123cdef",
                           ".tmp-replaced-12-0123cdef"}) {
    fs::create_directory(dir / ours);
  }
  retain_newest(dir.path(), 1);
  EXPECT_THAT(names_in(dir.path()), testing::UnorderedElementsAreArray(of_others));
}

}  // namespace
}  // namespace headrace
