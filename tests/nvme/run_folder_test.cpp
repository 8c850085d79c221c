// SPDX-License-Identifier: Apache-2.0
// Who owns a store's folder: two stores on one path, and what a killed process leaves.
#include <sys/prctl.h>

#include <csignal>
#include <thread>

#include "headrace/error.h"
#include "headrace/nvme.h"
#include "test_folder.h"

namespace headrace::nvme::test {
namespace {

Options options_for(const TestFolder& folder, const std::string& run_id = {}) {
  return {.path = folder.path(), .run_id = run_id, .chunk_bytes = kCrcBytes, .queue_depth = 2};
}

/// A process that holds a store with one extent of one piece until it is killed.
class Holder {
 public:
  explicit Holder(const Options& options) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) hold(options, ends[1]);
    ::close(ends[1]);
    char ready = 0;
    ready_ = ::read(ends[0], &ready, 1) == 1;
    ::close(ends[0]);
  }
  ~Holder() { kill(); }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  [[noreturn]] static void hold(const Options& options, int ready) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      Store store(options);
      store.create("extent", kCrcBytes);
      if (::write(ready, "r", 1) != 1) ::_exit(1);
      while (true) ::pause();
    } catch (...) {
      ::_exit(1);
    }
  }

  pid_t pid_ = -1;
  bool ready_ = false;
};

TEST(RunFolder, TwoStoresOnOnePathDoNotTouchEachOther) {
  const TestFolder folder;
  const Buffer first_bytes(kCrcBytes, 1);
  const Buffer second_bytes(kCrcBytes, 2);
  const Buffer in(kCrcBytes);
  Store first(options_for(folder));
  const ExtentId id = first.create("weights", kCrcBytes);
  first.wait(first.write(id, 0, first_bytes.span()));
  {
    Store second(options_for(folder));
    EXPECT_NE(second.folder(), first.folder());
    const ExtentId other = second.create("weights", kCrcBytes);
    EXPECT_NE(second.extent_path(other), first.extent_path(id));
    second.wait(second.write(other, 0, second_bytes.span()));
  }
  first.wait(first.read(id, 0, in.span()));
  EXPECT_TRUE(holds(in.span(), 1));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(RunFolder, OneRunIdIsOneStoreAndTheErrorNamesTheProcess) {
  const TestFolder folder;
  const Store store(options_for(folder, "run-7"));
  EXPECT_EQ(store.folder(), folder.path() + "/headrace-run-7");
  try {
    const Store second(options_for(folder, "run-7"));
    FAIL() << "the run id is in use";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("in use by process " + std::to_string(::getpid())));
  }
  EXPECT_TRUE(std::filesystem::exists(store.folder() + "/owner"));
}

TEST(RunFolder, ARunIdThatIsNoFileNameIsRefused) {
  const TestFolder folder;
  EXPECT_THROW(Store(options_for(folder, "../elsewhere")), ConfigError);
  EXPECT_THROW(Store(options_for(folder, "a b")), ConfigError);
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(RunFolder, APathThatIsNotThereIsNamed) {
  const TestFolder folder;
  Options options = options_for(folder);
  options.path = folder.path() + "/missing";
  try {
    const Store store(options);
    FAIL() << "no such directory";
  } catch (const IoError& error) {
    EXPECT_EQ(error.path, options.path);
    EXPECT_EQ(error.error_code, ENOENT);
  }
}

TEST(RunFolder, FilesOfTheFolderCannotBeTakenTwice) {
  const TestFolder folder;
  Store store(options_for(folder));
  store.create("weights", 100);
  EXPECT_THROW(store.create("weights", 100), IoError);
  EXPECT_TRUE(std::filesystem::exists(store.folder() + "/weights"));
}

TEST(RunFolder, WhatAKilledProcessLeftIsFoundAndRemovableAndALiveOnesIsNot) {
  const TestFolder folder;
  Holder live(options_for(folder, "live"));
  Holder dead(options_for(folder, "dead"));
  ASSERT_TRUE(live.ready() && dead.ready());
  EXPECT_TRUE(find_leftovers(folder.path()).empty());
  const pid_t dead_pid = dead.pid();
  dead.kill();

  const std::vector<Leftover> leftovers = find_leftovers(folder.path());
  ASSERT_EQ(leftovers.size(), 1u);
  EXPECT_EQ(leftovers[0].folder, folder.path() + "/headrace-dead");
  EXPECT_EQ(leftovers[0].bytes, kCrcBytes);
  EXPECT_EQ(leftovers[0].pid, dead_pid);
  try {
    const Store store(options_for(folder, "dead"));
    FAIL() << "the folder is there";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("headrace doctor --clean"));
  }

  EXPECT_THROW(remove_leftover({folder.path() + "/headrace-live", 0, live.pid()}), ConfigError);
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/headrace-live/extent"));
  remove_leftover(leftovers[0]);
  EXPECT_FALSE(std::filesystem::exists(leftovers[0].folder));
  EXPECT_NO_THROW(Store(options_for(folder, "dead")));
}

TEST(RunFolder, AFolderThatIsNotAStoresIsNeverRemoved) {
  const TestFolder folder;
  namespace fs = std::filesystem;
  const std::string mine = folder.path() + "/headrace-notes";
  fs::create_directory(mine);
  std::ofstream(mine + "/thesis.txt") << "years of work";
  EXPECT_TRUE(find_leftovers(folder.path()).empty());
  EXPECT_THROW(remove_leftover({mine, 0, 0}), ConfigError);

  std::ofstream(mine + "/owner") << "me\n";  // an owner file, but not one of ours
  EXPECT_TRUE(find_leftovers(folder.path()).empty());
  EXPECT_THROW(remove_leftover({mine, 0, 0}), ConfigError);

  std::ofstream(mine + "/owner") << "pid=1\nstarted=1\n";  // ours, but with more than files in it
  fs::create_directory(mine + "/chapters");
  EXPECT_THROW(remove_leftover({mine, 0, 0}), ConfigError);
  fs::remove(mine + "/chapters");

  const std::string link = folder.path() + "/headrace-link";
  fs::create_directory_symlink(mine, link);
  EXPECT_THROW(remove_leftover({link, 0, 0}), ConfigError);
  EXPECT_EQ(find_leftovers(folder.path()).size(), 1u);  // the folder itself, not the link
  EXPECT_TRUE(fs::exists(mine + "/thesis.txt"));
}

TEST(RunFolder, OptionsThatCannotWorkNameTheirKey) {
  const TestFolder folder;
  Options options = options_for(folder);
  options.chunk_bytes = kCrcBytes + 4096;
  try {
    const Store store(options);
    FAIL() << "not a multiple";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key, "nvme.chunk_bytes");
  }
  options = options_for(folder);
  options.queue_depth = 0;
  try {
    const Store store(options);
    FAIL() << "nothing could move";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key, "nvme.queue_depth");
  }
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace headrace::nvme::test
