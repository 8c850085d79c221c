// SPDX-License-Identifier: Apache-2.0
#include "data/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <utility>

#include "data/token_file.h"
#include "headrace/error.h"

namespace headrace {
namespace {

const char* format_name(TokenFormat format) {
  switch (format) {
    case TokenFormat::text:
      return "text";
    case TokenFormat::llmc:
      return "llmc";
    case TokenFormat::raw:
      return "raw";
  }
  return "?";
}

/// The last part of a path, in printable ASCII without the separators of a fingerprint.
std::string printable_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  std::string out;
  for (const char c : slash == std::string::npos ? path : path.substr(slash + 1)) {
    const bool plain = c > ' ' && c < 0x7f && c != '%' && c != ':' && c != ';';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

class MappedTokenSource final : public TokenSource {
 public:
  MappedTokenSource(const DataFiles& files, int64_t seq_len, int64_t vocab);

  uint64_t token_count() const override { return token_count_; }
  uint64_t window_count() const override { return windows_before_.back(); }
  uint64_t skipped_files() const override;
  std::string fingerprint() const override;
  void read_window(uint64_t window, Batch& batch, int64_t row) const override;

 private:
  [[nodiscard]] uint64_t windows_in(const TokenFile& file) const {
    return file.token_count() == 0 ? 0 : (file.token_count() - 1) / uint64_t(seq_len_);
  }
  void add_file(const std::string& path, TokenWidth raw_width);
  void check_any_window() const;

  std::string key_;
  TokenFormat format_;
  int64_t seq_len_, vocab_;
  std::vector<TokenFile> files_;
  /// [i]: windows in the files before file i; one more entry holds the total.
  std::vector<uint64_t> windows_before_{0};
  uint64_t token_count_ = 0;
};

MappedTokenSource::MappedTokenSource(const DataFiles& files, int64_t seq_len, int64_t vocab)
    : key_(files.key), format_(files.format), seq_len_(seq_len), vocab_(vocab) {
  if (seq_len < 1) throw ConfigError("data.seq_len", fmt::format("{} is not a sequence length", seq_len));
  if (vocab < 1 || vocab > std::numeric_limits<int32_t>::max()) {
    throw ConfigError("model.vocab", fmt::format("{} is not a vocabulary size", vocab));
  }
  if (format_ == TokenFormat::text && vocab < 256) {
    throw ConfigError(
        "model.vocab",
        fmt::format("{} is too small: data.format = \"text\" has 256 tokens, one per byte", vocab));
  }
  if (files.paths.empty()) throw ConfigError(key_, "no file is named");
  files_.reserve(files.paths.size());
  for (const std::string& path : files.paths) {
    add_file(path, files.raw_width);
  }
  check_any_window();
}

void MappedTokenSource::add_file(const std::string& path, TokenWidth raw_width) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_other(status)) {
    throw ConfigError(key_, path + " is not a regular file");
  }
  try {
    files_.emplace_back(path, format_, raw_width);
  } catch (const IoError& error) {
    throw IoError(key_ + ": open", error.path, error.error_code);
  }
  token_count_ += files_.back().token_count();
  windows_before_.push_back(windows_before_.back() + windows_in(files_.back()));
}

void MappedTokenSource::check_any_window() const {
  if (window_count() > 0) return;
  const auto longest = std::max_element(files_.begin(), files_.end(), [](const auto& a, const auto& b) {
    return a.token_count() < b.token_count();
  });
  throw ConfigError(key_,
                    fmt::format("a file needs at least seq_len + 1 = {} tokens, but {} holds {}{}; give more "
                                "text or a smaller data.seq_len",
                                seq_len_ + 1, longest->path(), longest->token_count(),
                                files_.size() > 1 ? " and the others no more" : ""));
}

uint64_t MappedTokenSource::skipped_files() const {
  return uint64_t(std::count_if(files_.begin(), files_.end(),
                                [this](const TokenFile& file) { return windows_in(file) == 0; }));
}

std::string MappedTokenSource::fingerprint() const {
  std::string out = format_name(format_);
  for (const TokenFile& file : files_) {
    out += fmt::format(";{}:{}:{}x{}", printable_name(file.path()), file.file_bytes(), file.token_count(),
                       file.token_bytes());
  }
  return out;
}

void MappedTokenSource::read_window(uint64_t window, Batch& batch, int64_t row) const {
  HEADRACE_CHECK(window < window_count(), "no such window");
  HEADRACE_CHECK(batch.seq == seq_len_ && row >= 0 && row < batch.batch, "row outside the batch");
  const auto after = std::upper_bound(windows_before_.begin(), windows_before_.end(), window);
  const auto index = size_t(std::distance(windows_before_.begin(), after)) - 1;
  const uint64_t first = (window - windows_before_[index]) * uint64_t(seq_len_);
  const auto seq = size_t(seq_len_);
  const std::span tokens(batch.tokens.data() + row * seq_len_, seq);
  const std::span labels(batch.labels.data() + row * seq_len_, seq);
  files_[index].check_size();
  files_[index].read(first, vocab_, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), labels.begin());
  files_[index].read(first + seq, vocab_, labels.last(1));
}

}  // namespace

std::unique_ptr<TokenSource> TokenSource::open(const DataFiles& files, int64_t seq_len, int64_t vocab) {
  return std::make_unique<MappedTokenSource>(files, seq_len, vocab);
}

}  // namespace headrace
