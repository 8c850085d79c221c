// SPDX-License-Identifier: Apache-2.0
// Every rule and every format of the optimizer's state: the same bits on every tier, thread count and
// staging, through saved bytes as well, and clear errors for what is not there.
#include <gtest/gtest.h>

#include "headrace/error.h"
#include "tests/engine/toy_program.h"
#include "tests/temp_dir.h"

namespace headrace {
namespace {

using test::ToyProgram;

EngineOptions options_on(Tier tier, const adam::Format& format, const std::string& path) {
  EngineOptions options;
  options.precision = format.weights == adam::WeightFormat::fp32 ? DType::f32 : DType::bf16;
  options.device_memory = 256u << 20;
  options.host_memory = tier == Tier::nvme ? 6u << 20 : 256u << 20;
  options.placement = {tier, tier, Tier::host, {}};
  options.rule = format.rule;
  options.moments = format.moments;
  options.optimizer_threads = tier == Tier::host ? 1 : 0;
  options.nvme.paths = {path};
  return options;
}

std::vector<std::byte> state_after(const EngineOptions& options) {
  ToyProgram program(options);
  for (uint64_t t = 1; t <= 3; ++t) EXPECT_FALSE(program.step(t, t == 2 ? 0.1 : 0).skipped);
  return program.state();
}

/// All; on a GPU, emulated or not, where the CPU updates them all the same, a few.
std::vector<adam::Format> formats_of_runs() {
  if (test::kTestDevice == DeviceChoice::cuda) {
    return {state_format(DType::bf16, adam::Rule::adamw, adam::MomentFormat::bf16),
            state_format(DType::bf16, adam::Rule::adamw, adam::MomentFormat::q8),
            state_format(DType::f32, adam::Rule::lion, adam::MomentFormat::bf16_m)};
  }
  std::vector<adam::Format> formats;
  for (const DType precision : {DType::f32, DType::bf16})
    for (size_t rule = 0; rule < std::size(adam::kRuleNames); ++rule)
      for (size_t moments = 0; moments < std::size(adam::kMomentNames); ++moments)
        if (const auto f = state_format(precision, adam::Rule(rule), adam::MomentFormat(moments)); offered(f))
          formats.push_back(f);
  return formats;
}

std::string name_of(const adam::Format& f) {
  return std::string(adam::kRuleNames[size_t(f.rule)]) + "_" + adam::kMomentNames[size_t(f.moments)] +
         (f.weights == adam::WeightFormat::fp32 ? "_fp32" : "_bf16");
}

class EveryFormat : public testing::TestWithParam<adam::Format> {};
INSTANTIATE_TEST_SUITE_P(Engine, EveryFormat, testing::ValuesIn(formats_of_runs()),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(EveryFormat, GivesTheSameBitsOnEveryTier) {
  const test::TempDir dir;
  const auto on_host = state_after(options_on(Tier::host, GetParam(), dir.path()));
  EXPECT_TRUE(on_host == state_after(options_on(Tier::nvme, GetParam(), dir.path())));
  const bool plain = GetParam() == state_format(options_on(Tier::host, GetParam(), "").precision);
  if (plain || test::kTestDevice == DeviceChoice::host) {
    EXPECT_TRUE(on_host == state_after(options_on(Tier::device, GetParam(), dir.path())));
  }
}

TEST_P(EveryFormat, PlansTheBytesThatItsArraysTake) {
  const Engine engine(options_on(Tier::host, GetParam(), ""), test::toy_units());
  uint64_t params = 0, weights = 0, optimizer = 0;
  for (const PlanItem& item : engine.plan().items) {
    if (item.key == "offload.weights") weights += item.bytes;
    if (item.key == "offload.optimizer") optimizer += item.bytes;
  }
  for (uint32_t u = 0; u < engine.units().size(); ++u) params += uint64_t(engine.layout(UnitId{u}).elems);
  // All but the gradient; what is more is padding, below 2%. Of q8, a tile's 65536 x 3.125 bytes are padded
  // to two checksums' 256 KiB.
  const bool q8 = GetParam().moments == adam::MomentFormat::q8;
  const double bytes = q8 ? 2 + 4 : (bytes_moved(GetParam(), DType::bf16) - 2) / 2;
  EXPECT_NEAR(double(weights + optimizer) / double(params), bytes, 0.02 * bytes);
}

std::string refusal(const EngineOptions& options) {
  try {
    make_plan(options, test::toy_units());
  } catch (const ConfigError& error) {
    return error.key + ": " + error.what();
  }
  return "none";
}

TEST(Formats, OnesThatAreNotThereAreRefusedWithTheKey) {
  const auto options = [](DType precision, adam::Rule rule, adam::MomentFormat moments) {
    EngineOptions made = options_on(Tier::host, state_format(precision), "");
    made.rule = rule;
    made.moments = moments;
    return made;
  };
  using adam::MomentFormat;
  using adam::Rule;
  EXPECT_NE(refusal(options(DType::f32, Rule::adamw, MomentFormat::q8)).find("set train.precision to bf16"),
            std::string::npos);
  EXPECT_NE(refusal(options(DType::bf16, Rule::lion, MomentFormat::bf16)).find("optimizer.moments: "),
            std::string::npos);
  EXPECT_EQ(refusal(options(DType::bf16, Rule::lion, MomentFormat::bf16_m)), "none");
}

TEST(Formats, AnAcceleratorUpdatesPlainAdamwOnly) {
  EngineOptions options = options_on(Tier::device, state_format(DType::bf16), "");
  options.device = test::kTestDevice;
  EXPECT_EQ(refusal(options), "none");
  options.moments = adam::MomentFormat::bf16;
  const std::string text = refusal(options);
  if (test::kTestDevice == DeviceChoice::host) {
    EXPECT_EQ(text, "none");
  } else {
    EXPECT_NE(text.find("offload.optimizer: "), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace headrace
