// SPDX-License-Identifier: Apache-2.0
// The folder of one store, PATH/headrace-RUN_ID, and who owns it. Its file `owner` is locked (flock) for as
// long as the store lives, so that a folder of a dead process can be told from one in use even when process
// numbers have been reused or are not visible. Also the list and removal of dead ones; see find_leftovers in
// nvme.h.
#pragma once

#include <string>
#include <string_view>

#include "nvme/file_descriptor.h"

namespace headrace::nvme {

/// The name an extent must not have.
inline constexpr std::string_view kOwnerFile = "owner";

class RunFolder {
 public:
  /// Makes the folder; an empty run_id is made up. ConfigError when the run_id is no file name or its folder
  /// is there already (in use, or left by a dead run), IoError when the path cannot be written.
  RunFolder(const std::string& path, const std::string& run_id);
  /// Removes the folder; the files in it must be gone.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void take_ownership();

  std::string path_;
  FileDescriptor owner_;
};

}  // namespace headrace::nvme
