// SPDX-License-Identifier: Apache-2.0
// Files and folders of saved runs by descriptor: every call's result is checked and becomes an IoError with
// path and errno, close and fsync included. Blocking; saving is not the hot path. Thread safety: read() may
// run concurrently, everything else is one thread's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headrace::saved {

class File {
 public:
  /// A new file for writing; it must not exist.
  static File create(const std::string& path);
  /// For reading; what is no regular file is CorruptData.
  static File open(const std::string& path);
  static File open_folder(const std::string& path);
  /// For reading and writing; keeps what is in it.
  static File open_or_create(const std::string& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t size() const;
  /// Takes the space now, so that a full disk is told here and not by a later write.
  void reserve(uint64_t bytes);
  void write(uint64_t offset, std::span<const std::byte> bytes);
  /// All of `bytes`; IoError with error_code 0 when the file ends before.
  void read(uint64_t offset, std::span<std::byte> bytes) const;
  /// fsync.
  void sync();
  /// Tells what the destructor would swallow.
  void close();

  enum class Lock { taken, held_by_another, unsupported };
  /// Whether path() still leads to this file.
  [[nodiscard]] bool has_its_name() const;
  /// An exclusive flock that lives as long as this descriptor.
  [[nodiscard]] Lock lock(bool wait);

 private:
  File(const std::string& path, int flags);
  std::string path_;
  int fd_;
};

/// A new file with this content, synced.
void write_file(const std::string& path, std::string_view content);
std::string read_file(const std::string& path);
void sync_folder(const std::string& path);

}  // namespace headrace::saved
