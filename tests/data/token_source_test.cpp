// SPDX-License-Identifier: Apache-2.0
#include "data/token_source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "headrace/error.h"
#include "tests/data/temp_folder.h"

namespace headrace {
namespace {

using test::TempFolder;
using test::write_text;
using test::write_values;
using testing::ElementsAre;
using testing::HasSubstr;

Batch window_of(const TokenSource& source, uint64_t window, int64_t seq_len) {
  Batch batch;
  batch.resize(1, seq_len);
  source.read_window(window, batch, 0);
  return batch;
}

/// 256 int32 of header, then the tokens.
template <class T>
void write_llmc(const std::string& path, int32_t magic, int32_t version, int32_t count,
                const std::vector<T>& tokens) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  write_values(path, header);
  write_values(path, tokens);
}

template <class E>
std::string message_of(const DataFiles& files, int64_t seq_len = 2, int64_t vocab = 256) {
  try {
    TokenSource::open(files, seq_len, vocab);
  } catch (const E& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Text, LastTargetOfAWindowIsTheNextWindowsFirstToken) {
  const TempFolder dir;
  write_text(dir / "a.txt",
             "abcdefgh");  // 8 tokens: windows abc>bcd and def>efg, h is left over
  const auto source = TokenSource::open({.paths = {dir / "a.txt"}}, 3, 256);
  EXPECT_EQ(source->token_count(), 8u);
  ASSERT_EQ(source->window_count(), 2u);
  const Batch first = window_of(*source, 0, 3), second = window_of(*source, 1, 3);
  EXPECT_THAT(first.tokens, ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(first.labels, ElementsAre('b', 'c', 'd'));
  EXPECT_THAT(second.tokens, ElementsAre('d', 'e', 'f'));
  EXPECT_THAT(second.labels, ElementsAre('e', 'f', 'g'));
}

TEST(Text, BytesAreUnsigned) {
  const TempFolder dir;
  write_text(dir / "a.txt", "\x7f\x80\xff\xc3\xa9");
  const auto source = TokenSource::open({.paths = {dir / "a.txt"}}, 4, 256);
  EXPECT_THAT(window_of(*source, 0, 4).tokens, ElementsAre(127, 128, 255, 195));
  EXPECT_THAT(window_of(*source, 0, 4).labels, ElementsAre(128, 255, 195, 169));
}

TEST(Text, NeedsAVocabularyOf256) {
  const TempFolder dir;
  write_text(dir / "a.txt", "abcdefgh");
  EXPECT_THAT(message_of<ConfigError>({.paths = {dir / "a.txt"}}, 3, 255), HasSubstr("model.vocab"));
}

TEST(Windows, NeverCrossFilesAndShortFilesAreSkipped) {
  const TempFolder dir;
  write_text(dir / "a", "abcde");  // 2 windows of 2
  write_text(dir / "b", "xy");     // seq_len + 1 = 3 are needed: none
  write_text(dir / "empty", "");
  write_text(dir / "c", "123");  // 1 window
  const auto source = TokenSource::open({.paths = {dir / "a", dir / "b", dir / "empty", dir / "c"}}, 2, 256);
  EXPECT_EQ(source->token_count(), 10u);
  EXPECT_EQ(source->skipped_files(), 2u);
  ASSERT_EQ(source->window_count(), 3u);
  EXPECT_THAT(window_of(*source, 1, 2).labels, ElementsAre('d', 'e'));
  EXPECT_THAT(window_of(*source, 2, 2).tokens, ElementsAre('1', '2'));
  EXPECT_THAT(window_of(*source, 2, 2).labels, ElementsAre('2', '3'));
}

TEST(Windows, TooShortDataSaysHowManyTokensAreNeeded) {
  const TempFolder dir;
  write_text(dir / "a", "abcd");
  const std::string message = message_of<ConfigError>({.paths = {dir / "a"}}, 4);
  EXPECT_THAT(message, HasSubstr("data.train"));
  EXPECT_THAT(message, HasSubstr("seq_len + 1 = 5"));
  EXPECT_THAT(message, HasSubstr("holds 4"));
  EXPECT_EQ(TokenSource::open({.paths = {dir / "a"}}, 3, 256)->window_count(), 1u);
}

TEST(Windows, MissingFileIsAnIoErrorThatNamesIt) {
  EXPECT_THAT(message_of<IoError>({.paths = {"/nonexistent/tokens.bin"}}),
              HasSubstr("/nonexistent/tokens.bin"));
  EXPECT_THAT(message_of<IoError>({.paths = {"/"}}), HasSubstr("directory"));
  EXPECT_THAT(message_of<ConfigError>({}), HasSubstr("data.train"));
}

TEST(Windows, ErrorsNameTheKeyThatTheFilesComeFrom) {
  EXPECT_THAT(message_of<IoError>({.paths = {"/nonexistent"}, .key = "data.valid"}), HasSubstr("data.valid"));
  EXPECT_THAT(message_of<ConfigError>({.paths = {"/dev/null"}, .key = "data.valid"}),
              HasSubstr("data.valid: /dev/null is not a regular file"));
  EXPECT_THAT(message_of<ConfigError>({.paths = {}, .key = "data.valid"}), HasSubstr("data.valid"));
}

TEST(Llmc, ReadsShardsOf16And32BitTokens) {
  const TempFolder dir;
  write_llmc<uint16_t>(dir / "a.bin", 20240520, 1, 4, {50256, 65535, 3, 4});
  write_llmc<uint32_t>(dir / "b.bin", 20240801, 7, 4, {128000, 65536, 5, 6});
  const DataFiles files{.paths = {dir / "a.bin", dir / "b.bin"}, .format = TokenFormat::llmc};
  const auto source = TokenSource::open(files, 3, 128256);
  EXPECT_EQ(source->token_count(), 8u);
  EXPECT_THAT(window_of(*source, 0, 3).tokens, ElementsAre(50256, 65535, 3));
  EXPECT_THAT(window_of(*source, 0, 3).labels, ElementsAre(65535, 3, 4));
  EXPECT_THAT(window_of(*source, 1, 3).tokens, ElementsAre(128000, 65536, 5));
}

TEST(Llmc, HeaderAndSizeMustFit) {
  const TempFolder dir;
  const auto refused = [&](const std::string& name) {
    return message_of<CorruptData>({.paths = {dir / name}, .format = TokenFormat::llmc});
  };
  write_llmc<uint16_t>(dir / "eval", 20240522, 1, 4, {1, 2, 3, 4});
  EXPECT_THAT(refused("eval"), testing::AllOf(HasSubstr("eval"), HasSubstr("20240522"), HasSubstr("raw")));
  write_llmc<uint16_t>(dir / "v2", 20240520, 2, 4, {1, 2, 3, 4});
  EXPECT_THAT(refused("v2"), testing::AllOf(HasSubstr("version 2"), HasSubstr("expected version 1")));
  write_llmc<uint16_t>(dir / "short", 20240520, 1, 5, {1, 2, 3, 4});
  EXPECT_THAT(refused("short"), testing::AllOf(HasSubstr("1034 bytes"), HasSubstr("1032")));
  write_llmc<uint16_t>(dir / "long", 20240520, 1, 3, {1, 2, 3, 4});
  EXPECT_THAT(refused("long"), testing::AllOf(HasSubstr("1030 bytes"), HasSubstr("1032")));
  write_llmc<uint16_t>(dir / "negative", 20240520, 1, -1, {1, 2, 3, 4});
  EXPECT_THAT(refused("negative"), HasSubstr("4294967295 tokens"));
  write_text(dir / "tiny", "hello");
  EXPECT_THAT(refused("tiny"), HasSubstr("5 bytes"));
}

TEST(Raw, ReadsBothWidthsAndRefusesHalfTokens) {
  const TempFolder dir;
  write_values<uint16_t>(dir / "a", {1, 2, 60000, 4});
  const DataFiles u16{.paths = {dir / "a"}, .format = TokenFormat::raw};
  EXPECT_THAT(window_of(*TokenSource::open(u16, 3, 65536), 0, 3).labels, ElementsAre(2, 60000, 4));
  write_values<uint32_t>(dir / "b", {1, 100000, 3});
  DataFiles u32{.paths = {dir / "b"}, .format = TokenFormat::raw, .raw_width = TokenWidth::u32};
  EXPECT_THAT(window_of(*TokenSource::open(u32, 2, 100001), 0, 2).tokens, ElementsAre(1, 100000));
  write_text(dir / "b", "xy");
  EXPECT_THAT(message_of<CorruptData>(u32), HasSubstr("data.token_dtype"));
}

TEST(Tokens, BeyondTheVocabularyNameFileAndPosition) {
  const TempFolder dir;
  write_values<uint16_t>(dir / "a", {1, 2, 3, 4, 299, 300, 7});
  const DataFiles files{.paths = {dir / "a"}, .format = TokenFormat::raw};
  const auto source = TokenSource::open(files, 2, 300);
  EXPECT_THAT(window_of(*source, 1, 2).labels, ElementsAre(4, 299));
  try {
    window_of(*source, 2, 2);
    FAIL() << "token 300 of a vocabulary of 300 was taken";
  } catch (const CorruptData& error) {
    EXPECT_EQ(error.path, dir / "a");
    EXPECT_EQ(error.offset, 10u);  // bytes
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("token 300"), HasSubstr("position 5")));
  }
  write_values<uint32_t>(dir / "b", {1, 0xffffffffu, 3});
  const DataFiles wide{.paths = {dir / "b"}, .format = TokenFormat::raw, .raw_width = TokenWidth::u32};
  const auto negative = TokenSource::open(wide, 2, 300);
  EXPECT_THROW(window_of(*negative, 0, 2), CorruptData);
}

TEST(Tokens, BeyondTwoGibibytesAreReadBack) {
  const TempFolder dir;
  const std::string path = dir / "sparse";
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  const uint16_t tokens[] = {111, 222, 333};
  const bool written =
      ::pwrite(fd, tokens, sizeof(tokens), off_t{1'100'000'000} * 2) == ssize_t(sizeof(tokens));
  ::close(fd);
  if (!written) GTEST_SKIP() << "no sparse files of 2.2 GB in " << dir.path();
  const DataFiles files{.paths = {path}, .format = TokenFormat::raw};
  const auto source = TokenSource::open(files, 2, 1000);
  EXPECT_EQ(source->token_count(), 1'100'000'003u);
  const Batch batch = window_of(*source, 550'000'000, 2);
  EXPECT_THAT(batch.tokens, ElementsAre(111, 222));
  EXPECT_THAT(batch.labels, ElementsAre(222, 333));
}

TEST(Cut, AFileThatShrinksInUseIsAnErrorWithBothSizes) {
  const TempFolder dir;
  write_text(dir / "a", std::string(3 * 4096, 'x'));
  const auto source = TokenSource::open({.paths = {dir / "a"}}, 4096, 256);
  window_of(*source, 0, 4096);
  std::filesystem::resize_file(dir / "a", 4096);
  try {
    window_of(*source, 1, 4096);
    FAIL() << "tokens beyond the end were read";
  } catch (const CorruptData& error) {
    EXPECT_EQ(error.path, dir / "a");
    EXPECT_EQ(error.offset, 4096u);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("12288 bytes"), HasSubstr("--resume")));
  }
}

TEST(Cut, AFileThatIsReplacedOrRemovedStaysAsItWas) {
  const TempFolder dir;
  write_text(dir / "a", "abcdefgh");
  write_text(dir / "new", "x");
  const auto source = TokenSource::open({.paths = {dir / "a"}}, 3, 256);
  std::filesystem::rename(dir / "new", dir / "a");
  EXPECT_THAT(window_of(*source, 1, 3).tokens, ElementsAre('d', 'e', 'f'));
  std::filesystem::remove(dir / "a");
  EXPECT_THAT(window_of(*source, 1, 3).tokens, ElementsAre('d', 'e', 'f'));
}

TEST(Fingerprint, IsOfTheDataAndNotOfTheFolder) {
  const TempFolder here, there;
  write_text(here / "a b.txt", "abcdefgh");
  write_text(there / "a b.txt", "abcdefgh");
  const auto print = [](const std::string& path, TokenFormat format = TokenFormat::text) {
    return TokenSource::open({.paths = {path}, .format = format}, 2, 100000)->fingerprint();
  };
  EXPECT_EQ(print(here / "a b.txt"), print(there / "a b.txt"));
  EXPECT_EQ(print(here / "a b.txt"), "text;a%20b.txt:8:8x1");
  EXPECT_NE(print(here / "a b.txt"), print(here / "a b.txt", TokenFormat::raw));
  write_text(there / "a b.txt", "i");
  EXPECT_NE(print(here / "a b.txt"), print(there / "a b.txt"));
}

}  // namespace
}  // namespace headrace
