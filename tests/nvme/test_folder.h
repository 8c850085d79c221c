// SPDX-License-Identifier: Apache-2.0
// For the tests of nvme: a temporary directory, bytes with a known value at every position, and a child
// process to try things that cannot be undone.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "headrace/nvme.h"
#include "nvme/page_block.h"

namespace headrace::nvme::test {

class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "headrace-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] size_t entries() const {
    return size_t(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

/// A value that differs between positions, seeds and repetitions (splitmix64, Steele et al. 2014).
inline std::byte pattern(uint64_t seed, uint64_t position) {
  uint64_t z = (seed << 40) + position / 8 * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return std::byte((z >> (position % 8 * 8)) & 0xff);
}

inline void fill(std::span<std::byte> data, uint64_t seed, uint64_t position = 0) {
  for (size_t i = 0; i < data.size(); ++i) data[i] = pattern(seed, position + i);
}

inline bool holds(std::span<const std::byte> data, uint64_t seed, uint64_t position = 0) {
  for (size_t i = 0; i < data.size(); ++i) {
    if (data[i] != pattern(seed, position + i)) return false;
  }
  return true;
}

/// Page-aligned memory as a span.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : block_(bytes) {}
  Buffer(size_t bytes, uint64_t seed) : block_(bytes) { fill(span(), seed); }
  [[nodiscard]] std::span<std::byte> span() const { return {block_.data(), block_.size()}; }

 private:
  PageBlock block_;
};

inline std::vector<char> file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void flip_bit(const std::string& path, uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(int64_t(offset));
  const auto value = char(file.get() ^ 0x10);
  file.seekp(int64_t(offset));
  file.put(value);
}

constexpr int kChildSkips = 77;

/// Runs `body` in a forked child; its result is the exit status, an exception is 99.
inline int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace headrace::nvme::test
