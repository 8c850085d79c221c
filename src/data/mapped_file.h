// SPDX-License-Identifier: Apache-2.0
// A whole file in the address space, read only. Used by token files; knows nothing of what the bytes mean.
// The file must not shrink while it is mapped: the kernel answers a touch beyond its end with SIGBUS.
#pragma once

#include <cstddef>
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

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace headrace
