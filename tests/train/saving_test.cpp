// SPDX-License-Identifier: Apache-2.0
// Units of awkward sizes through saved runs: trained, saved, loaded elsewhere, with exact counts.
#include "train/saving.h"

#include <gtest/gtest.h>

#include "tests/engine/toy_program.h"
#include "tests/engine_state.h"
#include "tests/temp_dir.h"
#include "tests/test_device.h"

namespace headrace {
namespace {

/// Parameters with 0, 1, 3, 7, 31 and 1,000,003 elements.
std::vector<UnitSpec> awkward_units() {
  return {{"small", {{"none", {0}}, {"one", {1}}, {"three", {3}}, {"seven", {7}}, {"thirty_one", {31}}}},
          {"empty", {{"none", {0, 4}}}},
          {"large", {{"million_and_three", {1'000'003}}}}};
}

EngineOptions options_on(Tier tier, DType precision, const std::string& path) {
  EngineOptions options;
  options.precision = precision;
  options.device = test::kTestDevice;
  options.device_memory = options.host_memory = 128u << 20;
  options.placement = {tier, tier, tier, tier};
  options.nvme.paths = {path};
  return options;
}

/// A number for every element of every plane, read back the same way.
void fill(Engine& engine) {
  for (uint32_t u = 0; u < engine.units().size(); ++u) {
    engine.visit_state(UnitId{u}, StateAccess::overwrite, [&](const StateTile& tile) {
      for (int64_t i = 0; i < tile.elems; ++i) {
        const auto at = float(tile.first + i);
        const SplitMaster split = split_master(test::initial_weight(u, tile.first + i));
        if (tile.arrays.lo) {
          tile.arrays.hi[i] = split.hi;
          tile.arrays.lo[i] = split.lo;
        } else {
          tile.arrays.w[i] = test::initial_weight(u, tile.first + i);
        }
        static_cast<float*>(tile.arrays.m)[i] = at * 0.5f;
        static_cast<float*>(tile.arrays.v)[i] = at * 0.25f;
      }
    });
  }
}

class SavedElsewhere : public testing::TestWithParam<std::tuple<Tier, Tier, DType>> {};

TEST_P(SavedElsewhere, EveryElementComesBackAndNoneIsAdded) {
  const auto [from, to, precision] = GetParam();
  test::TempDir dir;
  Engine source(options_on(from, precision, dir.path()), awkward_units());
  uint64_t params = 0;
  for (uint32_t u = 0; u < source.units().size(); ++u)
    params += uint64_t(source.layout(UnitId{u}).param_count);
  EXPECT_EQ(params, 0u + 1 + 3 + 7 + 31 + 1'000'003);
  EXPECT_EQ(source.plan().param_count, params);
  fill(source);
  const std::string folder = save_run(source, dir.path() + "/saved", {.step = 3}, "");

  Engine target(options_on(to, precision, dir.path()), awkward_units());
  load_run(target, SavedRun::open(folder));
  EXPECT_TRUE(test::state_bytes(source) == test::state_bytes(target));
}

INSTANTIATE_TEST_SUITE_P(Tiers, SavedElsewhere,
                         testing::Combine(testing::Values(Tier::device, Tier::nvme),
                                          testing::Values(Tier::host, Tier::nvme),
                                          testing::Values(DType::bf16, DType::f32)),
                         [](const auto& test) {
                           return std::string(tier_name(std::get<0>(test.param))) + "To" +
                                  tier_name(std::get<1>(test.param)) + dtype_name(std::get<2>(test.param));
                         });

}  // namespace
}  // namespace headrace
