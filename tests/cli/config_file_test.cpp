// SPDX-License-Identifier: Apache-2.0
#include "cli/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/config_key.h"

namespace headrace::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Config read(std::string_view text, std::vector<std::string> sets = {}) {
  return parse_config(text, "run.toml", sets).config;
}

/// The one line that a person sees.
std::string refusal(std::string_view text, std::vector<std::string> sets = {}) {
  try {
    read(text, std::move(sets));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ConfigFile, EmptyTextGivesTheDefaults) {
  const Config config = read("");
  EXPECT_EQ(config.train.steps, 100u);
  EXPECT_EQ(config.model.family, Family::llama);
  EXPECT_EQ(config.engine.precision, DType::bf16);
  EXPECT_EQ(config.engine.device_memory, 536870912u);
  EXPECT_FALSE(config.engine.placement.gradients.has_value());
}

TEST(ConfigFile, EveryKindOfValueIsRead) {
  const Config config = read(R"(
[model]
family = "gpt2"
tied = true
[data]
train = ["a.txt", "b.txt"]
valid = "c.txt"
format = "raw"
token_dtype = "uint32"
[optimizer]
lr = 1
betas = [0.8, 0.99]
[device]
memory = "3MiB"
[offload]
weights = "host"
gradients = "host"
host_memory = 2097152
[nvme]
engine = "posix"
direct = false
)");
  EXPECT_EQ(config.model.family, Family::gpt2);
  EXPECT_TRUE(config.model.tied);
  EXPECT_THAT(config.train_data.paths, ::testing::ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(config.valid_data.paths, ::testing::ElementsAre("c.txt"));
  EXPECT_EQ(config.train_data.format, TokenFormat::raw);
  EXPECT_EQ(config.valid_data.format, TokenFormat::raw);
  EXPECT_EQ(config.valid_data.raw_width, TokenWidth::u32);
  EXPECT_EQ(config.optimizer.adam.lr, 1.0);
  EXPECT_EQ(config.optimizer.adam.beta1, 0.8);
  EXPECT_EQ(config.optimizer.adam.beta2, 0.99);
  EXPECT_EQ(config.engine.device_memory, 3145728u);
  EXPECT_EQ(config.engine.host_memory, 2097152u);
  EXPECT_EQ(config.engine.placement.weights, Tier::host);
  EXPECT_EQ(config.engine.placement.gradients, Tier::host);
  EXPECT_EQ(config.engine.nvme.engine, nvme::EngineKind::posix);
  EXPECT_FALSE(config.engine.nvme.direct);
}

TEST(ConfigFile, ErrorsNameFileLineColumnAndKey) {
  EXPECT_THAT(refusal("[train]\nsteps = \"many\"\n"),
              AllOf(StartsWith("run.toml:2:1: train.steps: "), HasSubstr("integer"), HasSubstr("\"many\"")));
  EXPECT_THAT(refusal("[train]\n\n  steps = 1.5\n"), StartsWith("run.toml:3:3: train.steps: "));
  EXPECT_THAT(refusal("[train]\nsteps = \n"), StartsWith("run.toml:2:"));
  try {
    read("[train]\nsteps = true\n");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key, "train.steps");
  }
}

TEST(ConfigFile, UnknownKeysAreRefusedWithTheNearestOne) {
  EXPECT_EQ(refusal("[model]\nlayrs = 2\n"),
            "run.toml:2:1: model.layrs: unknown key; did you mean 'model.layers'?");
  EXPECT_THAT(refusal("[train]\nlr = 2\n"), HasSubstr("did you mean 'optimizer.lr'?"));
  EXPECT_THAT(refusal("lr = 2\n"), HasSubstr("did you mean 'optimizer.lr'?"));
  EXPECT_EQ(refusal("[modle]\nlayers = 2\n"), "run.toml:1:2: modle: unknown table; did you mean 'model'?");
  EXPECT_EQ(refusal("[train]\nquantum_flux = 2\n"), "run.toml:2:1: train.quantum_flux: unknown key");
}

TEST(ConfigFile, WordsOutsideTheListAreRefusedWithTheNearestOne) {
  EXPECT_THAT(refusal("[offload]\nweights = \"nvem\"\n"),
              AllOf(StartsWith("run.toml:2:1: offload.weights: "), HasSubstr("did you mean 'nvme'?"),
                    HasSubstr("\"device\" | \"host\" | \"nvme\"")));
  EXPECT_THAT(refusal("[model]\nfamily = \"mamba\"\n"), HasSubstr("\"mamba\" is not one of"));
  EXPECT_THAT(refusal("[model]\npreset = \"gpt2-125m\"\n"), HasSubstr("did you mean 'gpt2-124m'?"));
}

TEST(ConfigFile, ValuesOutOfRangeAreRefused) {
  EXPECT_THAT(refusal("[train]\nsteps = -1\n"), HasSubstr("train.steps"));
  EXPECT_THAT(refusal("[train]\nmicro_batch = 0\n"), HasSubstr("from 1"));
  EXPECT_THAT(refusal("[optimizer]\nbetas = [0.9, 1.0]\n"), HasSubstr("[0, 1)"));
  EXPECT_THAT(refusal("[optimizer]\nbetas = [0.9]\n"), HasSubstr("two numbers"));
  EXPECT_THAT(refusal("[optimizer]\nlr = nan\n"), HasSubstr("optimizer.lr"));
  EXPECT_THAT(refusal("[optimizer]\neps = 0.0\n"), HasSubstr("optimizer.eps"));
  EXPECT_THAT(refusal("[nvme]\nchunk_bytes = 200000\n"), HasSubstr("a multiple of 128KiB"));
  EXPECT_THAT(refusal("[device]\nmemory = \"12 parsecs\"\n"), HasSubstr("is not a size"));
  EXPECT_THAT(refusal("[device]\nmemory = -5\n"), HasSubstr("device.memory"));
}

TEST(ConfigFile, NumbersThatVanishInFp32AreRefused) {
  EXPECT_THAT(refusal("[optimizer]\neps = 1e-40\n"), HasSubstr("from 1e-30 to 1"));
  EXPECT_THAT(refusal("[model]\nnorm_eps = 1e-40\n"), HasSubstr("model.norm_eps"));
  EXPECT_THAT(refusal("[model]\nrope_theta = 0.5\n"), HasSubstr("from 1 to 1e12"));
  EXPECT_THAT(refusal("[optimizer]\nlr = 1e9\n"), HasSubstr("from 0 to 1e6, not 1000000000"));
}

TEST(ConfigFile, WrongTypesAreNamedAsWhatTheyAre) {
  EXPECT_THAT(refusal("[nvme]\npaths = [1]\n"), HasSubstr("not a list of 1 number"));
  EXPECT_THAT(refusal("[optimizer]\nbetas = [0.9]\n"), HasSubstr("not a list of 1 number"));
  EXPECT_THAT(refusal("[train]\nsteps = [\"a\", \"b\"]\n"), HasSubstr("not a list of 2 texts"));
  EXPECT_THAT(refusal("", {"model=3"}), StartsWith("--set: model: is a table"));
  EXPECT_THAT(refusal("model = 3\n"), StartsWith("run.toml:1:1: model: is a table"));
  EXPECT_THAT(refusal("[[model]]\nlayers = 3\n"), HasSubstr("is a table, not a list"));
}

TEST(ConfigFile, ShapesBeyondWhatCanBeCountedAreRefused) {
  EXPECT_THAT(refusal("[data]\nseq_len = 65536\n[train]\nmicro_batch = 1025\n"),
              AllOf(HasSubstr("train.micro_batch"), HasSubstr("data.seq_len = 65536")));
  EXPECT_EQ(refusal("[data]\nseq_len = 65536\n[train]\nmicro_batch = 1024\n"), "accepted");
  EXPECT_THAT(refusal("[model]\nlayers = 10000\nhidden = 1048576\nffn = 1048576\n"), HasSubstr("2^60"));
  EXPECT_THAT(refusal("[model]\nlayers = 10001\n"), HasSubstr("from 1 to 10000"));
}

TEST(ConfigFile, AnNvmePathIsAFolderAndIsNamedOnce) {
  const std::string dir = ::testing::TempDir();
  EXPECT_THAT(refusal("[nvme]\npaths = [\"" + dir + "\", \"" + dir + "/.\"]\n"),
              HasSubstr("the same folder"));
  EXPECT_THAT(refusal("[nvme]\npaths = [\"/dev/null\"]\n"),
              AllOf(HasSubstr("nvme.paths"), HasSubstr("is not a folder")));
}

TEST(ConfigFile, ImpossibleCombinationsNameTheKeys) {
  EXPECT_THAT(refusal("[offload]\noptimizer = \"nvme\"\n"),
              AllOf(HasSubstr("nvme.paths"), HasSubstr("offload.optimizer")));
  EXPECT_THAT(refusal("[model]\nmax_seq = 64\n[data]\nseq_len = 128\n"),
              AllOf(StartsWith("run.toml:4:1: data.seq_len"), HasSubstr("model.max_seq = 64")));
  EXPECT_THAT(refusal("[model]\nfamily = \"gpt2\"\nheads = 4\nkv_heads = 2\n"),
              StartsWith("run.toml:4:1: model.kv_heads"));
  EXPECT_THAT(refusal("[model]\nvocab = 100\n"), HasSubstr("256 values"));
  EXPECT_THAT(refusal("[nvme]\npaths = [\"/a\", \"/a\"]\n"), HasSubstr("twice"));
  EXPECT_EQ(refusal("[data]\nvalid = []\n"), "accepted");
}

TEST(ConfigFile, DerivedKeysFollowTheShape) {
  const Config gpt2 = read("[model]\nfamily = \"gpt2\"\nhidden = 96\nheads = 6\n[data]\nseq_len = 32\n");
  EXPECT_EQ(gpt2.model.kv_heads, 6);
  EXPECT_EQ(gpt2.model.ffn, 384);
  EXPECT_EQ(gpt2.model.max_seq, 32);
  // 8/3 * 256 = 682.67, and 11 * 64 = 704 is the next multiple of 64.
  EXPECT_EQ(read("[model]\nhidden = 256\n").model.ffn, 704);
  EXPECT_EQ(read("[model]\nheads = 4\nkv_heads = 2\n").model.kv_heads, 2);
}

TEST(ConfigFile, KeysBesideAPresetOverrideItInAnyOrder) {
  const Config config = read("[model]\nlayers = 3\npreset = \"gpt2-124m\"\n[data]\nformat = \"llmc\"\n");
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.model.family, Family::gpt2);
  EXPECT_EQ(config.model.hidden, 768);
  EXPECT_EQ(config.model.vocab, 50257);
  EXPECT_TRUE(config.model.tied);
}

TEST(SetOption, APresetTakesThePlaceOfTheFilesShapeAndALaterKeyOverridesIt) {
  const std::string file = "[model]\nlayers = 3\nhidden = 64\n[data]\nseq_len = 64\n";
  const Config preset = read(file, {"model.heads=2", "model.preset=llama-1b", "model.layers=5"});
  EXPECT_EQ(preset.model.hidden, 2048);
  EXPECT_EQ(preset.model.heads, 32);
  EXPECT_EQ(preset.model.layers, 5);
  EXPECT_EQ(preset.seq_len, 64);
  const Config none = read("[model]\npreset = \"llama-1b\"\nlayers = 3\n", {"model.preset=none"});
  EXPECT_EQ(none.model.layers, 3);
  EXPECT_EQ(none.model.hidden, 256);
}

TEST(SetOption, OverridesTheFileAndTheLastOneWins) {
  const Config config = read("[train]\nsteps = 5\n", {"train.steps=6", "train.steps = 7"});
  EXPECT_EQ(config.train.steps, 7u);
}

TEST(SetOption, TakesTomlAndBareWords) {
  const Config config = read("", {"offload.weights=host", "nvme.paths=[\"/a b\", '/c']", "log.dir=/tmp/x=y",
                                  "device.memory=16MiB", "optimizer.lr=3e-3", "model.tied=true",
                                  "checkpoint.dir=\"quoted\"", "optimizer.betas=[0.5, 0.75]"});
  EXPECT_EQ(config.engine.placement.weights, Tier::host);
  EXPECT_THAT(config.engine.nvme.paths, ::testing::ElementsAre("/a b", "/c"));
  EXPECT_EQ(config.log_dir, "/tmp/x=y");
  EXPECT_EQ(config.engine.device_memory, 16777216u);
  EXPECT_EQ(config.optimizer.adam.lr, 3e-3);
  EXPECT_TRUE(config.model.tied);
  EXPECT_EQ(config.checkpoint_dir, "quoted");
  EXPECT_EQ(config.optimizer.adam.beta2, 0.75);
}

TEST(SetOption, ErrorsSayThatTheyComeFromSet) {
  EXPECT_EQ(refusal("", {"train.stesp=1"}), "--set: train.stesp: unknown key; did you mean 'train.steps'?");
  EXPECT_THAT(refusal("[train]\nsteps = 5\n", {"train.steps=many"}), StartsWith("--set: train.steps: takes"));
  EXPECT_THAT(refusal("", {"train.steps"}), StartsWith("--set: train.steps: has no '='"));
  EXPECT_THAT(refusal("", {"nvme.paths=[\"/a\""}), StartsWith("--set: nvme.paths: "));
  EXPECT_THAT(refusal("", {"log.dir=\"\""}), HasSubstr("is empty"));
}

TEST(SetOption, CannotSmuggleInASecondKey) {
  EXPECT_EQ(read("", {"log.dir=a\nsteps = 3"}).log_dir, "a\nsteps = 3");
  EXPECT_THAT(refusal("", {"train.steps=1\nother = 3"}), HasSubstr("train.steps: takes an integer"));
}

/// A value, different from the default, for every key.
std::vector<std::string> sets_for_every_key() {
  std::vector<std::string> sets;
  for (const Key& key : config_keys()) {
    std::string value;
    if (const auto* field = std::get_if<IntegerField>(&key.field)) {
      value = std::to_string(std::max<int64_t>(field->get(read("")), field->min) + 1);
    } else if (std::holds_alternative<RealField>(key.field)) {
      value = std::get<RealField>(key.field).min == 1 ? "1.3333333333333333" : "0.3333333333333333";
    } else if (std::holds_alternative<BetasField>(key.field)) {
      value = "[0.1, 0.2]";
    } else if (const auto* flag = std::get_if<BoolField>(&key.field)) {
      value = flag->get(read("")) ? "false" : "true";
    } else if (std::holds_alternative<TextField>(key.field)) {
      value = R"("a \"b\" \\ c\t")";
    } else if (std::holds_alternative<TextListField>(key.field)) {
      value = R"(["x", "y"])";
    } else if (std::holds_alternative<BytesField>(key.field)) {
      value = "7864320";  // 60 * 128 KiB
    } else if (const auto* word = std::get_if<WordField>(&key.field)) {
      value = std::string(word->words[(word->get(read("")) + 1) % word->words.size()]);
    } else {
      continue;
    }
    // The two that other keys bind: gpt2 has as many key/value heads as heads, seq_len <= max_seq.
    if (key.name == "model.heads" || key.name == "model.kv_heads") value = "9";
    if (key.name == "model.max_seq") value = "1000";
    sets.push_back(std::string(key.name) + "=" + value);
  }
  return sets;
}

TEST(PrintConfig, ReadsBackAsTheSameConfigForEveryKey) {
  const std::vector<std::string> sets = sets_for_every_key();
  const std::string changed = print_config(read("", sets));
  EXPECT_EQ(print_config(read(changed)), changed);
  EXPECT_EQ(print_config(read(print_config(read("")))), print_config(read("")));
  // No key is printed from another one's place: each set alone changes exactly its own line.
  for (const std::string& set : sets) {
    if (set.starts_with("model.") || set.starts_with("data.seq_len") || set.starts_with("offload.")) continue;
    std::istringstream before(print_config(read(""))), after(print_config(read("", {set})));
    int differences = 0;
    for (std::string a, b; std::getline(before, a) && std::getline(after, b);) {
      if (a == b) continue;
      ++differences;
      const std::string leaf = set.substr(set.find('.') + 1, set.find('=') - set.find('.') - 1);
      EXPECT_THAT(b, StartsWith(leaf + " = ")) << set;
    }
    EXPECT_EQ(differences, 1) << set;
  }
}

TEST(PrintConfig, KeepsEveryBitOfANumber) {
  const Config config = read("", {"optimizer.lr=0.1234567890123456", "optimizer.eps=1e-30"});
  const Config again = read(print_config(config));
  EXPECT_EQ(again.optimizer.adam.lr, 0.1234567890123456);
  EXPECT_EQ(again.optimizer.adam.eps, 1e-30);
}

TEST(ConfigKeys, AllHaveOneLineOfDocumentationAndADescribedTable) {
  for (const Key& key : config_keys()) {
    EXPECT_FALSE(key.doc.empty()) << key.name;
    EXPECT_EQ(key.doc.find('\n'), std::string_view::npos) << key.name;
    EXPECT_FALSE(table_doc(key.table()).empty()) << key.name;
  }
}

TEST(ConfigurationPage, HoldsTheTablesOfTheListOfKeys) {
  const std::string path = HEADRACE_SOURCE_DIR "/docs/configuration.md";
  std::ifstream file(path);
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string tables = configuration_reference();
  const size_t begin = page.find("## [");
  ASSERT_NE(begin, std::string::npos) << path;
  if (page.substr(begin) == tables) return;
  if (std::getenv("HEADRACE_UPDATE_DOCS")) {
    std::ofstream(path) << page.substr(0, begin) << tables;
  } else {
    FAIL() << "docs/configuration.md is behind the list of keys; run this test with HEADRACE_UPDATE_DOCS=1";
  }
}

TEST(LoadConfig, AnEmptyFileGivesTheDefaultsAndOtherThingsThanFilesAreNamed) {
  const std::string folder = ::testing::TempDir() + "headrace_config_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/empty.toml").close();
  EXPECT_EQ(load_config(folder + "/empty.toml", {}).config.train.steps, 100u);
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder, folder + "/pipe", std::string("/dev/null")}) {
    try {
      load_config(path, {});
      ADD_FAILURE() << path;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path), HasSubstr("not a configuration file")));
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(LoadConfig, AMissingFileIsAMistakeOfTheCommandLine) {
  try {
    load_config("/nonexistent/run.toml", {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "open /nonexistent/run.toml: No such file or directory (errno 2)");
  }
}

}  // namespace
}  // namespace headrace::cli
