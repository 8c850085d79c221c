// SPDX-License-Identifier: Apache-2.0
// A whole file in the address space, read only. Used by token files; knows nothing of what the bytes mean.
// The kernel answers a touch beyond the end of a file that has shrunk since with SIGBUS, the end of the
// process. check_size() before each use makes that an error; what remains is a file cut in the microseconds
// between the check and the last touch. A file that was replaced or removed stays mapped as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace headrace {

class MappedFile {
 public:
  /// Throws IoError when `path` cannot be opened, is not a regular file or cannot be mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  /// Throws CorruptData when the file is shorter than when it was opened. One system call.
  void check_size() const;

 private:
  // By name, not by a descriptor kept open: data sets have more files than a process may have open.
  std::string path_;
  uint64_t device_ = 0, inode_ = 0;
  std::span<const std::byte> bytes_;
};

}  // namespace headrace
