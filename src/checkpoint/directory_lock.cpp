// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/directory_lock.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "checkpoint/run_folders.h"
#include "headrace/error.h"

namespace headrace::saved {
namespace {

// Of one length, so that no digit of an earlier holder stays behind a shorter number.
constexpr size_t kPidWidth = 10;

/// 0 when the file does not tell: the holder may be just about to write it.
int64_t holder_of(const File& file) {
  std::array<char, kPidWidth> text{};
  try {
    file.read(0, std::as_writable_bytes(std::span(text)));
  } catch (const IoError&) {
    return 0;
  }
  int64_t pid = 0;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  return pid;
}

[[noreturn]] void refuse(const std::string& dir, int64_t holder) {
  throw ConfigError("checkpoint.dir",
                    fmt::format("{} is in use by another training{}; wait for its end or name another folder",
                                dir, holder > 0 ? fmt::format(" (process {})", holder) : std::string()));
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& dir) {
  make_folders(dir);
  const std::string path = dir + "/.training-lock";
  while (!held_) {
    file_.emplace(File::open_or_create(path));
    const File::Lock result = file_->lock(false);
    if (result == File::Lock::held_by_another) refuse(dir, holder_of(*file_));
    if (result == File::Lock::unsupported) break;
    // The holder before may have removed the file between the two calls; then the lock is on nothing.
    held_ = file_->has_its_name();
  }
  const std::string text = fmt::format("{:<{}}\n", ::getpid(), kPidWidth);
  file_->write(0, std::as_bytes(std::span(text)));
}

DirectoryLock::~DirectoryLock() {
  // While it is still locked: nobody else's file has this name. Without locks it may be another's.
  if (held_) ::unlink(file_->path().c_str());
}

}  // namespace headrace::saved
