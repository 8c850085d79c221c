// SPDX-License-Identifier: Apache-2.0
// Wrong use is named, and faults of the world reach the caller without a hang.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "headrace/error.h"
#include "tests/engine/toy_program.h"
#include "tests/temp_dir.h"

namespace headrace {
namespace {

EngineOptions nvme_options(const std::string& path) {
  EngineOptions options;
  options.device_memory = options.host_memory = 256u << 20;
  options.placement = {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme};
  options.nvme.paths = {path};
  return options;
}

using EngineDeathTest = testing::Test;

TEST(EngineDeathTest, ReleaseWithoutGatherIsNamed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  test::TempDir dir;
  EXPECT_DEATH(
      {
        test::ToyProgram program(nvme_options(dir.path()));
        program.engine().release(UnitId{0});
      },
      "released without gather");
}

TEST(EngineDeathTest, ReduceScatterWithoutGradientIsNamed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  test::TempDir dir;
  EXPECT_DEATH(
      {
        test::ToyProgram program(nvme_options(dir.path()));
        program.engine().reduce_scatter(UnitId{0});
      },
      "reduce_scatter without gradient");
}

TEST(EngineDeathTest, TheRulesAreTheSameWhenEverythingIsOnTheDevice) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EngineOptions options = nvme_options("/tmp");
  options.placement = {};
  const auto with_program = [&](auto&& use) {
    test::ToyProgram program(options);
    use(program.engine());
  };
  EXPECT_DEATH(with_program([](Engine& e) { e.release(UnitId{0}); }), "released without gather");
  EXPECT_DEATH(with_program([](Engine& e) { e.gather(UnitId{99}); }), "no such unit");
  EXPECT_DEATH(with_program([](Engine& e) { e.gather(UnitId{0}), e.gather(UnitId{0}); }), "gathered twice");
  EXPECT_DEATH(with_program([](Engine& e) {
                 e.gather(UnitId{0});
                 e.visit_state(UnitId{1}, StateAccess::read, [](const StateTile&) {});
               }),
               "while a unit is gathered");
}

TEST(Engine, AUnitNameThatIsNoFileNameIsRefusedOnEveryTier) {
  test::TempDir dir;
  for (Tier tier : {Tier::device, Tier::nvme}) {
    EngineOptions options = nvme_options(dir.path());
    options.placement = {tier, tier, tier, tier};
    for (const char* name : {"", "a/b", "..", "with space"}) {
      EXPECT_THROW(Engine(options, {{name, {{"w", {4}}}}}), ConfigError) << name;
    }
    EXPECT_THROW(Engine(options, {{"a", {{"w", {4}}}}, {"a", {{"w", {4}}}}}), ConfigError);
  }
}

TEST(Engine, AFlippedBitInASwapFileIsFoundAndNamed) {
  test::TempDir dir;
  test::ToyProgram program(nvme_options(dir.path()));
  program.step(1, 1.0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
    if (entry.path().filename().string().find("head.weights") == std::string::npos) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(1000);
    const char byte = char(file.get() ^ 4);
    file.seekp(1000);
    file.put(byte);
  }
  try {
    program.step(2, 1.0);
    FAIL() << "the flipped bit went unnoticed";
  } catch (const CorruptData& error) {
    EXPECT_NE(error.path.find("head.weights"), std::string::npos);
    EXPECT_EQ(error.offset, 0u);
  }
}

TEST(Engine, ATruncatedSwapFileIsFound) {
  test::TempDir dir;
  test::ToyProgram program(nvme_options(dir.path()));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
    if (entry.path().filename().string().find("layer.1.optimizer") == std::string::npos) continue;
    ASSERT_EQ(truncate(entry.path().c_str(), 4096), 0);
  }
  EXPECT_THROW(program.step(1, 1.0), Error);
}

TEST(Engine, TwoEnginesShareAPathWithoutTouchingEachOther) {
  test::TempDir dir;
  test::ToyProgram a(nvme_options(dir.path())), b(nvme_options(dir.path()));
  a.step(1, 1.0);
  a.step(2, 1.0);
  b.step(1, 1.0);
  b.step(2, 1.0);
  EXPECT_TRUE(a.state() == b.state());
}

TEST(Engine, LeavesNothingBehindAtACleanEnd) {
  test::TempDir dir;
  {
    test::ToyProgram program(nvme_options(dir.path()));
    program.step(1, 1.0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace headrace
