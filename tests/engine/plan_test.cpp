// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "headrace/engine.h"
#include "headrace/error.h"
#include "tests/engine/toy_program.h"
#include "tests/temp_dir.h"

namespace headrace {
namespace {

std::vector<UnitSpec> layers(int count) {
  std::vector<UnitSpec> units;
  for (int i = 0; i < count; ++i) units.push_back({"layer." + std::to_string(i), {{"w", {512, 1024}}}});
  return units;
}

EngineOptions everything_nvme(const std::string& path) {
  EngineOptions options;
  options.device = DeviceChoice::host;
  options.device_memory = 64u << 20;
  options.host_memory = 64u << 20;
  options.placement = {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme};
  options.nvme.paths = {path};
  return options;
}

TEST(Plan, StateIsTwelveBytesAParameterInBf16AndInFp32) {
  // bf16: hi 2, lo 2, m 4, v 4. fp32: w 4, m 4, v 4. Gradients 2 and 4.
  test::TempDir dir;
  EngineOptions options = everything_nvme(dir.path());
  constexpr uint64_t kParams = 4 * 512 * 1024;
  EXPECT_EQ(make_plan(options, layers(4)).total(Tier::nvme), kParams * (12 + 2));
  options.precision = DType::f32;
  EXPECT_EQ(make_plan(options, layers(4)).total(Tier::nvme), kParams * (12 + 4));
}

TEST(Plan, HostAndDeviceDoNotGrowWithDepthWhenEverythingIsOnNvme) {
  test::TempDir dir;
  const EngineOptions options = everything_nvme(dir.path());
  const Plan shallow = make_plan(options, layers(4)), deep = make_plan(options, layers(64));
  EXPECT_EQ(shallow.total(Tier::device), deep.total(Tier::device));
  EXPECT_EQ(shallow.total(Tier::host), deep.total(Tier::host));
  EXPECT_EQ(deep.total(Tier::nvme), 16 * shallow.total(Tier::nvme));
}

TEST(Plan, GradientsGoToNvmeOnlyWhenTheHostBudgetDoesNotHoldThem) {
  test::TempDir dir;
  EngineOptions options = everything_nvme(dir.path());
  options.placement.gradients.reset();
  EXPECT_EQ(make_plan(options, layers(4)).placement.gradients, Tier::host);
  EXPECT_EQ(make_plan(options, layers(64)).placement.gradients, Tier::nvme);
}

TEST(Plan, OverTheDeviceBudgetIsRefusedWithTheNumberToChange) {
  test::TempDir dir;
  EngineOptions options = everything_nvme(dir.path());
  options.device_memory = 1u << 20;
  const Plan plan = make_plan(options, layers(4));
  try {
    check_plan(plan, options);
    FAIL() << "a plan over budget was accepted";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.tier, "device");
    EXPECT_EQ(error.wanted, plan.total(Tier::device));
    EXPECT_EQ(error.available, options.device_memory);
    EXPECT_NE(std::string(error.what()).find("device.memory"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(std::to_string(error.wanted)), std::string::npos);
  }
  EXPECT_THROW(Engine(options, layers(4)), OutOfMemory);
}

TEST(Plan, OverTheHostBudgetNamesItsKey) {
  EngineOptions options = everything_nvme("/tmp");
  options.placement = {Tier::host, Tier::host, Tier::host, {}};
  options.host_memory = 4u << 20;
  try {
    check_plan(make_plan(options, layers(4)), options);
    FAIL() << "a plan over budget was accepted";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.tier, "host");
    const std::string text = error.what();
    EXPECT_NE(text.find("raise offload.host_memory"), std::string::npos);
    // 4 layers x 512 x 1024 parameters, 10 bytes each of lo, m and v.
    EXPECT_NE(text.find(", or change offload.optimizer (optimizer state: 20.0 MiB)"), std::string::npos)
        << text;
  }
}

TEST(Plan, OverAHostBudgetOfStagingOnlyDoesNotOfferTheSameKeyTwice) {
  test::TempDir dir;
  EngineOptions options = everything_nvme(dir.path());
  options.host_memory = 1;
  try {
    check_plan(make_plan(options, layers(4)), options);
    FAIL() << "a plan over budget was accepted";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(std::string(error.what()).find("or change"), std::string::npos) << error.what();
  }
}

TEST(Plan, NvmeWithoutAPathIsAnErrorThatNamesTheKey) {
  EngineOptions options = everything_nvme("/tmp");
  options.nvme.paths.clear();
  try {
    (void)make_plan(options, layers(1));
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key, "nvme.paths");
  }
}

TEST(Plan, ADriveWithTooLittleSpaceIsRefused) {
  test::TempDir dir;
  std::vector<UnitSpec> huge = {{"huge", {{"w", {int64_t{1} << 20, int64_t{1} << 22}}}}};
  EngineOptions options = everything_nvme(dir.path());
  options.device_memory = options.host_memory = ~uint64_t{0} / 2;
  try {
    check_plan(make_plan(options, huge), options);
    FAIL() << "accepted";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.tier, "nvme");
  }
}

TEST(Plan, ADriveFilledByAKilledRunSaysHowToEmptyIt) {
  test::TempDir dir;
  const std::string left = dir.path() + "/headrace-killed";
  std::filesystem::create_directory(left);
  std::ofstream(left + "/owner") << "pid=1\nstarted=1\n";
  std::ofstream(left + "/weights") << "x";
  std::filesystem::resize_file(left + "/weights", 3 << 20);
  std::vector<UnitSpec> huge = {{"huge", {{"w", {int64_t{1} << 20, int64_t{1} << 22}}}}};
  EngineOptions options = everything_nvme(dir.path());
  options.device_memory = options.host_memory = ~uint64_t{0} / 2;
  try {
    check_plan(make_plan(options, huge), options);
    FAIL() << "accepted";
  } catch (const OutOfMemory& error) {
    const std::string remedy =
        "`headrace doctor --clean " + dir.path() + "` removes 3.0 MiB that killed runs left";
    EXPECT_NE(std::string(error.what()).find(remedy), std::string::npos) << error.what();
  }
}

TEST(Plan, TheEngineUsesExactlyWhatWasPlanned) {
  test::TempDir dir;
  for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    EngineOptions options = everything_nvme(dir.path());
    options.device_memory = options.host_memory = 256u << 20;
    options.placement = {tier, tier, tier, tier};
    options.activation_bytes = 300000;
    options.activation_count = 6;
    options.workspace_bytes = 12345;
    Engine engine(options, layers(4));
    const Stats stats = engine.stats();
    EXPECT_EQ(stats.peak_device_bytes, engine.plan().total(Tier::device));
    EXPECT_EQ(stats.peak_pinned_bytes, engine.plan().total(Tier::host));
    EXPECT_EQ(stats.peak_nvme_bytes, engine.plan().total(Tier::nvme));
  }
}

}  // namespace
}  // namespace headrace
