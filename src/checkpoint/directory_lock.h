// SPDX-License-Identifier: Apache-2.0
// A checkpoint directory for one training alone: two of them would set each other's saved runs aside. The
// trainer holds it for its life. Saving itself does not ask for it: two processes may save the same step.
// Readers (generate) need none. Thread safety: one thread.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/file.h"

namespace headrace::saved {

class DirectoryLock {
 public:
  /// Locks DIR/.training-lock (flock), which names this process; makes `dir` too. Throws ConfigError
  /// ("checkpoint.dir") when another training holds it, IoError when the file cannot be written.
  explicit DirectoryLock(const std::string& dir);
  /// Removes the file. What a killed process leaves is taken over by the next.
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  /// False on a file system without locks: nothing keeps a second training out.
  [[nodiscard]] bool held() const { return held_; }

 private:
  bool held_ = false;
  std::optional<File> file_;
};

}  // namespace headrace::saved
