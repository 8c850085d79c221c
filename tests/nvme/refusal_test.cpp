// SPDX-License-Identifier: Apache-2.0
// What the system refuses: io_uring (seccomp, as containers do), locked memory, space, file sizes. Each in a
// child process, since none of these can be taken back.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "engines.h"
#include "headrace/error.h"
#include "headrace/nvme.h"
#include "test_folder.h"

namespace headrace::nvme::test {
namespace {

constexpr size_t kMiB = 1u << 20;
constexpr uid_t kNobody = 65534;

Options options_for(const TestFolder& folder, EngineKind engine = EngineKind::automatic) {
  return {.path = folder.path(), .run_id = "", .chunk_bytes = kCrcBytes, .queue_depth = 4, .engine = engine};
}

/// From now on the system call fails with `code` in this process.
bool refuse(long system_call, int code) {
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, uint32_t(system_call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | uint32_t(code)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

bool round_trip(Store& store) {
  const ExtentId id = store.create("round-trip", kMiB + 100);
  const Buffer buffer(kMiB + 100, 9);
  store.wait(store.write(id, 0, buffer.span()));
  std::memset(buffer.span().data(), 0, buffer.span().size());
  store.wait(store.read(id, 0, buffer.span()));
  return holds(buffer.span(), 9);
}

/// 0 when the store in `folder` falls back to POSIX, says so and works, and io_uring by name is a
/// ConfigError.
int check_fallback(const TestFolder& folder) {
  Store store(options_for(folder));
  if (store.engine() != EngineKind::posix) return 2;
  if (store.engine_note().find("io_uring") == std::string::npos) return 3;
  if (!round_trip(store)) return 4;
  try {
    const Store named(options_for(folder, EngineKind::io_uring));
    return 5;
  } catch (const ConfigError& error) {
    return error.key == "nvme.engine" ? 0 : 6;
  }
}

/// From now on this process may map `more` bytes beyond what it has mapped. Not with a sanitizer, which maps
/// for itself and ends the process when it cannot.
bool limit_address_space(size_t more) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)more;
  return false;
#else
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0;
  if (!(statm >> pages)) return false;
  const rlim_t bytes = pages * size_t(::sysconf(_SC_PAGESIZE)) + more;
  const rlimit limit{bytes, bytes};
  return ::setrlimit(RLIMIT_AS, &limit) == 0;
#endif
}

class Refusal : public testing::Test {
 protected:
  void expect_child(const std::function<int()>& body) {
    const int code = in_child(body);
    if (code == kChildSkips) GTEST_SKIP() << "this system does not let the test make the fault";
    EXPECT_EQ(code, 0);
  }
  TestFolder folder_;
};

TEST_F(Refusal, IoUringRefusedAtSetupFallsBackToPosix) {
  for (const int code : {EPERM, ENOSYS, EACCES, ENOMEM, EMFILE, EINVAL}) {
    SCOPED_TRACE(std::strerror(code));
    expect_child([&] { return refuse(SYS_io_uring_setup, code) ? check_fallback(folder_) : kChildSkips; });
  }
}

TEST_F(Refusal, IoUringRefusedAtTheFirstSubmitFallsBackToPosix) {
  for (const int code : {EPERM, ENOSYS}) {
    SCOPED_TRACE(std::strerror(code));
    expect_child([&] { return refuse(SYS_io_uring_enter, code) ? check_fallback(folder_) : kChildSkips; });
  }
}

TEST_F(Refusal, RefusedRegistrationCostsSpeedOnly) {
  if (!has_io_uring()) GTEST_SKIP() << "no io_uring here";
  expect_child([&] {
    if (!refuse(SYS_io_uring_register, EPERM)) return kChildSkips;
    const Buffer arena(kMiB);
    Store store(options_for(folder_));
    store.register_memory(arena.span());
    if (store.engine() != EngineKind::io_uring) return 2;
    if (store.engine_note().find("not registered") == std::string::npos) return 3;
    return round_trip(store) ? 0 : 4;
  });
}

TEST_F(Refusal, ALockedMemoryLimitIsNamedAndTheStoreWorks) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become an ordinary user with a limit of its own";
  if (!has_io_uring()) GTEST_SKIP() << "no io_uring here";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
  expect_child([&] {
    const rlimit limit{64 << 10, 64 << 10};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setuid(kNobody) != 0) return kChildSkips;
    const Buffer arena(kMiB);
    Store store(options_for(folder_));
    store.register_memory(arena.span());
    if (store.engine_note().find("RLIMIT_MEMLOCK") == std::string::npos) return 2;
    if (store.engine_note().find("64 KiB") == std::string::npos) return 3;
    return round_trip(store) ? 0 : 4;
  });
}

TEST_F(Refusal, AFullDriveIsAnErrorAtCreateAndEarlierDataIsIntact) {
  expect_child([&] {
    // A small file system that only this child sees.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder_.path().c_str(), "tmpfs", 0, "size=8m") != 0) {
      return kChildSkips;
    }
    Store store(options_for(folder_));
    const ExtentId id = store.create("earlier", 2 * kMiB);
    const Buffer buffer(2 * kMiB, 1);
    store.wait(store.write(id, 0, buffer.span()));
    try {
      store.create("too-large", 16 * kMiB);
      return 2;
    } catch (const IoError& error) {
      if (error.error_code != ENOSPC || error.path != store.folder() + "/too-large") return 3;
    }
    if (std::filesystem::exists(store.folder() + "/too-large")) return 4;
    std::memset(buffer.span().data(), 0, buffer.span().size());
    store.wait(store.read(id, 0, buffer.span()));
    if (!holds(buffer.span(), 1)) return 5;
    return round_trip(store) ? 0 : 6;
  });
}

TEST_F(Refusal, PoolsWhoseThreadsRunOutEndThoseThatStarted) {
  expect_child([&] {
    // Room for a few of the 32 stacks of 8 MiB. A pool that waits for itself is ended by the alarm.
    if (!limit_address_space(50 * kMiB)) return kChildSkips;
    ::alarm(20);
    Options options = options_for(folder_, EngineKind::posix);
    options.queue_depth = 16;
    try {
      const Store store(options);
      return 2;
    } catch (const std::system_error& error) {
      if (error.code().value() != EAGAIN) return 3;
    }
    return folder_.entries() == 0 ? 0 : 4;
  });
}

TEST_F(Refusal, BuffersThatCannotBeMappedNameTheirKeys) {
  expect_child([&] {
    if (!limit_address_space(50 * kMiB)) return kChildSkips;
    Options options = options_for(folder_);
    options.chunk_bytes = 1024 * kMiB;
    try {
      const Store store(options);
      return 2;
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("nvme.chunk_bytes (1073741824)") == std::string::npos) return 3;
      if (text.find("nvme.queue_depth (4)") == std::string::npos) return 4;
    }
    return folder_.entries() == 0 ? 0 : 5;
  });
}

TEST_F(Refusal, AFileSizeLimitIsAnErrorAndNotASignal) {
  expect_child([&] {
    const rlimit limit{kMiB, kMiB};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return kChildSkips;
    Store store(options_for(folder_));
    try {
      store.create("too-large", 2 * kMiB);
      return 2;
    } catch (const IoError& error) {
      if (error.error_code != EFBIG) return 3;
    }
    return std::filesystem::exists(store.folder() + "/too-large") ? 4 : 0;
  });
}

TEST_F(Refusal, AnUnwritablePathIsAnErrorWithItsName) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become an ordinary user";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  expect_child([&] {
    if (::setuid(kNobody) != 0) return kChildSkips;
    try {
      const Store store(options_for(folder_));
      return 2;
    } catch (const IoError& error) {
      return error.error_code == EACCES ? 0 : 3;
    }
  });
}

}  // namespace
}  // namespace headrace::nvme::test
