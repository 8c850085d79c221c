// SPDX-License-Identifier: Apache-2.0
#include "data/token_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "headrace/error.h"

namespace headrace {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

// llm.c data shards: 256 int32 of header {magic, version, token count, 0 ...}, then the tokens.
constexpr uint64_t kLlmcHeaderBytes = 1024;
struct LlmcKind {
  uint32_t magic, version;
  unsigned token_bytes;
};
constexpr LlmcKind kLlmcKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

const LlmcKind& llmc_kind(const std::string& path, uint32_t magic, uint32_t version) {
  for (const LlmcKind& kind : kLlmcKinds) {
    if (kind.magic != magic) continue;
    if (kind.version == version) return kind;
    throw CorruptData(
        path, 4,
        fmt::format("llm.c version {} with magic {}, expected version {}; write the shard again "
                    "with a current llm.c",
                    version, magic, kind.version));
  }
  throw CorruptData(path, 0,
                    fmt::format("magic {} is not that of an llm.c token shard (20240520: 16-bit, 20240801: "
                                "32-bit tokens); files without a header are data.format = \"raw\"",
                                magic));
}

}  // namespace

TokenFile::TokenFile(std::string path, TokenFormat format, TokenWidth raw_width)
    : path_(std::move(path)), file_(path_) {
  switch (format) {
    case TokenFormat::text:
      token_count_ = file_.bytes().size();
      break;
    case TokenFormat::llmc:
      parse_llmc();
      break;
    case TokenFormat::raw:
      parse_raw(raw_width);
      break;
  }
}

void TokenFile::parse_llmc() {
  if (file_bytes() < kLlmcHeaderBytes) {
    throw CorruptData(
        path_, 0,
        fmt::format("{} bytes, but an llm.c shard has a header of {}; files without a header are "
                    "data.format = \"raw\"",
                    file_bytes(), kLlmcHeaderBytes));
  }
  std::array<uint32_t, 3> header;
  std::memcpy(header.data(), file_.bytes().data(), sizeof(header));
  token_bytes_ = llmc_kind(path_, header[0], header[1]).token_bytes;
  header_bytes_ = kLlmcHeaderBytes;
  token_count_ = header[2];
  const uint64_t expected = kLlmcHeaderBytes + token_count_ * token_bytes_;
  if (file_bytes() != expected) {
    throw CorruptData(
        path_, 8,
        fmt::format("the header says {} tokens of {} bytes, which makes {} bytes of file, but it "
                    "has {}: copy or write the shard again",
                    token_count_, token_bytes_, expected, file_bytes()));
  }
}

void TokenFile::parse_raw(TokenWidth width) {
  token_bytes_ = width == TokenWidth::u16 ? 2 : 4;
  if (file_bytes() % token_bytes_ != 0) {
    throw CorruptData(path_, file_bytes() / token_bytes_ * token_bytes_,
                      fmt::format("{} bytes are not whole {}-byte tokens; check data.token_dtype",
                                  file_bytes(), token_bytes_));
  }
  token_count_ = file_bytes() / token_bytes_;
}

template <class T>
void TokenFile::read_as(uint64_t first, int64_t vocab, std::span<int32_t> out) const {
  const std::byte* from = file_.bytes().data() + header_bytes_ + first * sizeof(T);
  for (size_t i = 0; i < out.size(); ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof(T), sizeof(T));
    if (int64_t{token} >= vocab) {
      throw CorruptData(
          path_, header_bytes_ + (first + i) * sizeof(T),
          fmt::format("token {} at position {} is not below model.vocab = {}; was the file made "
                      "with another tokenizer, or is it of another width?",
                      token, first + i, vocab));
    }
    out[i] = int32_t(token);
  }
}

void TokenFile::read(uint64_t first, int64_t vocab, std::span<int32_t> out) const {
  HEADRACE_CHECK(first <= token_count_ && out.size() <= token_count_ - first, "read past the last token");
  switch (token_bytes_) {
    case 1:
      return read_as<uint8_t>(first, vocab, out);
    case 2:
      return read_as<uint16_t>(first, vocab, out);
    default:
      return read_as<uint32_t>(first, vocab, out);
  }
}

}  // namespace headrace
