// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/saved_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/crc32c.h"
#include "headrace/error.h"
#include "tests/checkpoint/run_fixture.h"
#include "tests/data/temp_folder.h"

namespace headrace {
namespace {

using test::kTile;
using test::TempFolder;
using test::TileMemory;
using testing::HasSubstr;
namespace fs = std::filesystem;

template <class E, class F>
std::string message_of(const F& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing thrown";
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void flip_bit(const std::string& path, uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(std::streamoff(offset));
  const char byte = char(file.get() ^ 0x10);
  file.seekp(std::streamoff(offset));
  file.put(byte);
  ASSERT_TRUE(file.flush());
}

// RFC 3720, B.4, and the check value of the CRC catalogue.
TEST(Crc32c, IsCastagnolis) {
  EXPECT_EQ(saved::crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(saved::crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(saved::crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  const std::string text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(saved::crc32c(bytes.subspan(4), saved::crc32c(bytes.first(4))), 0xe3069283u);
}

class SavedRunOf : public testing::TestWithParam<DType> {};

TEST_P(SavedRunOf, ComesBackBitForBit) {
  const TempFolder dir;
  const auto units = test::small_model();
  const std::string folder = test::save(dir.path(), 120, units, GetParam());
  EXPECT_EQ(folder, dir / "step-0000000120");

  const auto run = SavedRun::newest(dir.path(), nullptr);
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->folder(), folder);
  EXPECT_EQ(run->format(), state_format(GetParam()));
  EXPECT_EQ(run->config_toml(), "[train]\nsteps = 7\n");
  EXPECT_TRUE(test::holds(*run, 120, units, GetParam()));
  EXPECT_FALSE(test::holds(*run, 121, units, GetParam())) << "the comparison can fail";
  EXPECT_NO_THROW(run->check_matches(test::specs(units), state_format(GetParam())));

  const RunState expected = test::state_at(120), &state = run->state();
  EXPECT_EQ(state.step, 60u);
  EXPECT_EQ(state.attempted_steps, 120u);
  EXPECT_EQ(state.skipped_steps, 60u);
  EXPECT_EQ(state.skipped_in_a_row, 1u);
  EXPECT_EQ(state.tokens, expected.tokens);
  EXPECT_EQ(state.data_epoch, 3u);
  EXPECT_EQ(state.data_window, 77u);
  EXPECT_EQ(state.model, "llama, layers 2");
  EXPECT_EQ(state.data_fingerprint, expected.data_fingerprint);
  EXPECT_EQ(state.seed, ~uint64_t{0});
}

TEST_P(SavedRunOf, AnyRangeCanBeReadAndWritten) {
  const TempFolder dir;
  const auto units = test::small_model();
  const int64_t total = units[0].layout.elems;
  SavedRunWriter writer(dir.path(), test::state_at(1), state_format(GetParam()), "");
  TileMemory memory(total);
  writer.begin_unit(units[0].spec, units[0].layout);
  for (int64_t first = 0; first < total;) {  // a rank's shard may end anywhere in a tile
    const int64_t elems = std::min<int64_t>(first == 0 ? 2048 : 70000, total - first);
    test::fill(memory, 1, 0, first, elems, GetParam());
    writer.add_tile(memory.tile(first, elems, GetParam()));
    first += elems;
  }
  writer.end_unit();
  const SavedRun run = SavedRun::open(writer.finish());
  EXPECT_TRUE(test::holds(run, 1, {units[0]}, GetParam()));

  TileMemory read(total), expected(total);
  const size_t width = dtype_bytes(GetParam());
  for (const auto& [first, elems] : std::vector<std::pair<int64_t, int64_t>>{
           {0, total}, {1, 1}, {kTile - 1, 2}, {5, kTile}, {kTile, kTile}, {total - 1, 1}, {total, 0}}) {
    test::fill(expected, 1, 0, first, elems, GetParam());
    run.read_tile("layer.0", read.tile(first, elems, GetParam()));
    EXPECT_TRUE(test::equal(read, expected, elems, GetParam())) << first;
    std::vector<std::byte> weights(size_t(elems) * width);
    run.read_weights("layer.0", first, elems, weights.data());
    EXPECT_TRUE(std::equal(weights.begin(), weights.end(), expected.weights.begin())) << first;
  }
}

// Planes of layer.0, 150128 elements, at the next multiples of 4096: weights 300256 (600512) bytes, lo
// 300256, m and v 600512 each.
TEST_P(SavedRunOf, FlippedBitInAnyPlaneIsFoundByFileAndOffset) {
  const auto units = test::small_model();
  const std::vector<uint64_t> planes = GetParam() == DType::bf16
                                           ? std::vector<uint64_t>{0, 303104, 606208, 1208320}
                                           : std::vector<uint64_t>{0, 602112, 1204224};
  for (size_t p = 0; p < planes.size(); ++p) {
    const uint64_t width = p == 0 || planes.size() - p > 2 ? dtype_bytes(GetParam()) : 4;
    const TempFolder dir;
    const std::string folder = test::save(dir.path(), 5, units, GetParam());
    const std::string file = folder + "/unit-0000.bin";
    const uint64_t second_tile = planes[p] + uint64_t(kTile) * width;
    flip_bit(file, second_tile + 1234);
    const SavedRun run = SavedRun::open(folder);
    TileMemory memory(kTile);
    EXPECT_NO_THROW(run.read_tile("layer.0", memory.tile(0, kTile, GetParam())));
    try {
      run.read_tile("layer.0", memory.tile(kTile, kTile, GetParam()));
      ADD_FAILURE() << "plane " << p << " was read";
    } catch (const CorruptData& error) {
      EXPECT_EQ(error.path, file);
      EXPECT_EQ(error.offset, second_tile);
    }
    if (p == 0) {
      EXPECT_THROW(run.read_weights("layer.0", kTile, 1, memory.weights.data()), CorruptData);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precision, SavedRunOf, testing::Values(DType::f32, DType::bf16),
                         [](const auto& param) { return dtype_name(param.param); });

/// Damages a saved run; newest() must go on to the one before and say why, open() must refuse.
void expect_skipped(const std::function<void(const std::string& folder)>& damage, const std::string& why) {
  const TempFolder dir;
  const auto units = test::small_model();
  test::save(dir.path(), 5, units);
  const std::string folder = test::save(dir.path(), 6, units);
  damage(folder);
  std::vector<std::string> warnings;
  const auto run = SavedRun::newest(dir.path(), [&](const std::string& line) { warnings.push_back(line); });
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->state().attempted_steps, 5u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], testing::AllOf(HasSubstr("step-0000000006"), HasSubstr(why)));
  EXPECT_THROW(SavedRun::open(folder), Error);
}

TEST(Damage, TruncatedUnitFile) {
  expect_skipped([](const std::string& run) { fs::resize_file(run + "/unit-0000.bin", 100000); },
                 "100000 bytes");
}

TEST(Damage, MissingUnitFile) {
  expect_skipped([](const std::string& run) { fs::remove(run + "/unit-0001.bin"); }, "unit-0001.bin");
}

TEST(Damage, MissingManifest) {
  expect_skipped([](const std::string& run) { fs::remove(run + "/manifest.json"); },
                 "manifest.json is missing");
  expect_skipped([](const std::string& run) { fs::remove(run + "/manifest.crc32c"); },
                 "manifest.crc32c is missing");
}

TEST(Damage, PipesAndFoldersInPlaceOfFilesAreNotWaitedFor) {
  for (const char* name : {"/manifest.json", "/manifest.crc32c", "/config.toml", "/unit-0001.bin"}) {
    const auto with_pipe = [name](const std::string& run) {
      fs::remove(run + name);
      ASSERT_EQ(::mkfifo((run + name).c_str(), 0600), 0);
    };
    const auto with_folder = [name](const std::string& run) {
      fs::remove(run + name);
      fs::create_directory(run + name);
    };
    expect_skipped(with_pipe, "not a regular file");
    expect_skipped(with_folder, "not a regular file");
  }
}

TEST(Damage, TamperedManifest) {
  expect_skipped(
      [](const std::string& run) {
        std::string text = read_text(run + "/manifest.json");
        const size_t at = text.find("\"data_window\": 77");
        ASSERT_NE(at, std::string::npos);
        text[at + 15] = '8';
        fs::remove(run + "/manifest.json");
        test::write_text(run + "/manifest.json", text);
      },
      "checksum");
}

TEST(Damage, FlippedBitInTheTableOfChecksums) {
  expect_skipped(
      [](const std::string& run) {
        flip_bit(run + "/unit-0000.bin", fs::file_size(run + "/unit-0000.bin") - 1);
      },
      "table of checksums");
}

TEST(Damage, ChangedConfig) {
  expect_skipped([](const std::string& run) { flip_bit(run + "/config.toml", 3); }, "config.toml");
}

TEST(Damage, UnitFileOfAnotherRun) {
  expect_skipped(
      [](const std::string& run) {
        const std::string other = fs::path(run).parent_path() / "step-0000000005/unit-0000.bin";
        fs::copy_file(other, run + "/unit-0000.bin", fs::copy_options::overwrite_existing);
      },
      "table of checksums");
}

TEST(Damage, NameOfAnotherStep) {
  expect_skipped(
      [](const std::string& run) { fs::rename(run, fs::path(run).parent_path() / "step-0000000009"); },
      "name of step 9");
}

/// A manifest whose checksum is right and whose content is not.
TEST(Damage, ImpossibleManifestsAreRefused) {
  const std::vector<std::pair<std::string, std::string>> edits{
      {"\"version\": 1", "\"version\": 2"},
      {"\"file\": \"unit-0000.bin\"", "\"file\": \"../unit-0000.bin\""},
      {"\"elems\": 150128", "\"elems\": 281474976710657"},
      {"\"elems\": 150128", "\"elems\": 150129000"},
      {"\"offset\": 128", "\"offset\": 129"},
      {"\"name\": \"head\"", "\"name\": \"layer.0\""},
      {"\"precision\": \"bf16\"", "\"precision\": \"fp8\""},
      {"\"precision\": \"bf16\"", "\"precision\": 7"},
      {"\"state\"", "\"stats\""},
      {"{", "["}};
  for (const auto& [from, to] : edits) {
    expect_skipped(
        [&](const std::string& run) {
          std::string text = read_text(run + "/manifest.json");
          const size_t at = text.find(from);
          ASSERT_NE(at, std::string::npos) << from;
          text.replace(at, from.size(), to);
          fs::remove(run + "/manifest.json");
          fs::remove(run + "/manifest.crc32c");
          test::write_text(run + "/manifest.json", text);
          test::write_text(run + "/manifest.crc32c", saved::crc_text(saved::crc32c(text)) + "\n");
        },
        "manifest");
  }
}

TEST(Newest, IsOfTheHighestNumberAndNotOfTheLongestString) {
  const TempFolder dir;
  for (const uint64_t step : {9, 100000, 20}) test::save(dir.path(), step, test::small_model());
  fs::create_directory(dir / "step-");
  fs::create_directory(dir / "step-12x");
  fs::rename(dir / "step-0000000020", dir / "step-20");  // the last as a string
  EXPECT_EQ(SavedRun::newest(dir.path(), nullptr)->state().attempted_steps, 100000u);
  EXPECT_EQ(SavedRun::newest(dir / "step-0000000009", nullptr)->state().attempted_steps, 9u)
      << "its own folder";
}

TEST(Newest, IsNothingWhereNothingWasSaved) {
  const TempFolder dir;
  EXPECT_FALSE(SavedRun::newest(dir.path(), nullptr).has_value());
  EXPECT_FALSE(SavedRun::newest(dir / "missing", nullptr).has_value());
  EXPECT_THROW(SavedRun::open(dir / "missing"), CorruptData);
}

TEST(CheckMatches, NamesTheFirstDifference) {
  const TempFolder dir;
  const auto units = test::small_model();
  const SavedRun run = SavedRun::open(test::save(dir.path(), 1, units));
  const auto refused = [&](std::vector<UnitSpec> specs, DType precision = DType::bf16) {
    return message_of<ConfigError>([&] { run.check_matches(specs, state_format(precision)); });
  };
  EXPECT_THAT(refused(test::specs(units), DType::f32), HasSubstr("is bf16, this run is fp32"));
  auto specs = test::specs(units);
  specs[0].segments[1].shape = {100, 1500};
  EXPECT_THAT(refused(specs),
              HasSubstr("unit layer.0: mlp.weight is [1500, 100] in the saved run and [100, 1500]"));
  specs = test::specs(units);
  specs[0].segments[0].name = "norm.bias";
  EXPECT_THAT(refused(specs), HasSubstr("tensor 0 is norm.weight in the saved run and norm.bias here"));
  specs = test::specs(units);
  specs[1].segments.push_back({"bias", {7}, false});
  EXPECT_THAT(refused(specs), HasSubstr("unit head: bias is not in the saved run"));
  specs[1].segments.clear();
  EXPECT_THAT(refused(specs), HasSubstr("unit head: weight is only in the saved run"));
  specs = test::specs(units);
  specs[1].name = "lm_head";
  EXPECT_THAT(refused(specs), HasSubstr("unit lm_head: not in the saved run"));
  specs = test::specs(units);
  specs.erase(specs.begin());
  EXPECT_THAT(refused(specs), HasSubstr("unit layer.0: only in the saved run"));
  TileMemory memory(8);
  EXPECT_THROW(run.read_tile("lm_head", memory.tile(0, 7, DType::bf16)), ConfigError);
  EXPECT_THROW(run.read_tile("head", memory.tile(0, 8, DType::bf16)), ConfigError);
}

}  // namespace
}  // namespace headrace
