// SPDX-License-Identifier: Apache-2.0
// One mapped file seen as tokens: where they begin, how wide they are and how many there are. TokenSource
// cuts windows out of it. Thread safety: const after construction.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/mapped_file.h"
#include "data/token_source.h"

namespace headrace {

class TokenFile {
 public:
  /// Throws IoError, or CorruptData for a header or size that does not fit the format.
  TokenFile(std::string path, TokenFormat format, TokenWidth raw_width);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t file_bytes() const { return file_.bytes().size(); }
  [[nodiscard]] uint64_t token_count() const { return token_count_; }
  [[nodiscard]] unsigned token_bytes() const { return token_bytes_; }
  /// Throws CorruptData when the file has shrunk since it was opened; to be asked before read().
  void check_size() const { file_.check_size(); }
  /// Tokens [first, first + out.size()). Throws CorruptData naming the first that is >= vocab.
  void read(uint64_t first, int64_t vocab, std::span<int32_t> out) const;

 private:
  template <class T>
  void read_as(uint64_t first, int64_t vocab, std::span<int32_t> out) const;
  void parse_llmc();
  void parse_raw(TokenWidth width);

  std::string path_;
  MappedFile file_;
  uint64_t header_bytes_ = 0;
  unsigned token_bytes_ = 1;
  uint64_t token_count_ = 0;
};

}  // namespace headrace
