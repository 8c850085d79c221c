// SPDX-License-Identifier: Apache-2.0
// What a model declares: units, segments, stages and sizes; and which configurations are refused.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "headrace/error.h"
#include "model_cases.h"

namespace headrace::test {
namespace {

std::vector<std::string> names(const UnitSpec& unit) {
  std::vector<std::string> all;
  for (const Segment& segment : unit.segments) all.push_back(segment.name);
  return all;
}

const Segment& segment(const UnitSpec& unit, const std::string& name) {
  for (const Segment& s : unit.segments)
    if (s.name == name) return s;
  throw std::out_of_range(name);
}

TEST(Declaration, LlamaHasTheSegmentsOfItsLayers) {
  const auto model = make_model(tiny_llama(false), DType::bf16, DeviceKind::host);
  ASSERT_EQ(model->units().size(), 4u);
  EXPECT_EQ(model->stages(), 4);
  EXPECT_EQ(model->units()[0].name, "embed");
  EXPECT_EQ(model->units()[1].name, "layer.0");
  EXPECT_EQ(model->units()[2].name, "layer.1");
  EXPECT_EQ(model->units()[3].name, "head");
  const UnitSpec& layer = model->units()[2];
  EXPECT_EQ(names(layer),
            (std::vector<std::string>{"attn_norm.weight", "attn.qkv.weight", "attn.out.weight",
                                      "mlp_norm.weight", "mlp.gate_up.weight", "mlp.down.weight"}));
  // hidden 24, 4 heads of 6, 2 kv heads, ffn 20.
  EXPECT_EQ(segment(layer, "attn.qkv.weight").shape, (std::vector<int64_t>{48, 24}));
  EXPECT_EQ(segment(layer, "mlp.gate_up.weight").shape, (std::vector<int64_t>{40, 24}));
  EXPECT_EQ(segment(layer, "mlp.down.weight").shape, (std::vector<int64_t>{24, 20}));
  EXPECT_EQ(names(model->units()[3]), (std::vector<std::string>{"norm.weight", "weight"}));
}

TEST(Declaration, Gpt2HasBiasesAndPositions) {
  const auto model = make_model(tiny_gpt2(true), DType::f32, DeviceKind::host);
  EXPECT_EQ(names(model->units()[0]), (std::vector<std::string>{"wte.weight", "wpe.weight"}));
  EXPECT_EQ(segment(model->units()[0], "wpe.weight").shape, (std::vector<int64_t>{16, 24}));
  EXPECT_EQ(
      names(model->units()[1]),
      (std::vector<std::string>{"attn_norm.weight", "attn_norm.bias", "attn.qkv.weight", "attn.qkv.bias",
                                "attn.out.weight", "attn.out.bias", "mlp_norm.weight", "mlp_norm.bias",
                                "mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"}));
  EXPECT_EQ(names(model->units()[3]), (std::vector<std::string>{"norm.weight", "norm.bias"}));
}

TEST(Declaration, OnlyMatricesOfLinearMapsDecay) {
  for (const ModelConfig& config : {tiny_llama(false), tiny_gpt2(false)}) {
    const auto model = make_model(config, DType::f32, DeviceKind::host);
    for (const UnitSpec& unit : model->units())
      for (const Segment& s : unit.segments)
        EXPECT_EQ(s.weight_decay, s.shape.size() == 2 && unit.name != "embed") << unit.name << " " << s.name;
  }
}

TEST(Declaration, AHeadThatIsTiedAlsoNamesTheEmbedding) {
  const auto untied = make_model(tiny_llama(false), DType::f32, DeviceKind::host);
  const auto tied = make_model(tiny_llama(true), DType::f32, DeviceKind::host);
  const auto ids = [](std::span<const UnitId> units) {
    return std::vector<UnitId>(units.begin(), units.end());
  };
  EXPECT_EQ(ids(untied->units_of(0)), std::vector{UnitId(0)});
  EXPECT_EQ(ids(untied->units_of(2)), std::vector{UnitId(2)});
  EXPECT_EQ(ids(untied->units_of(3)), std::vector{UnitId(3)});
  EXPECT_EQ(ids(tied->units_of(3)), (std::vector{UnitId(3), UnitId(0)}));
}

TEST(Declaration, MemoryDoesNotGrowWithDepth) {
  ModelConfig shallow = tiny_llama(false), deep = shallow;
  deep.layers = 50;
  const auto a = make_model(shallow, DType::bf16, DeviceKind::host);
  const auto b = make_model(deep, DType::bf16, DeviceKind::host);
  EXPECT_EQ(a->saved_bytes(2, 16), b->saved_bytes(2, 16));
  EXPECT_EQ(a->scratch_bytes(2, 16), b->scratch_bytes(2, 16));
  EXPECT_EQ(a->activation_bytes(2, 16), size_t(2 * 16 * 24 * 2));
  EXPECT_EQ(a->saved_bytes(2, 16) % 4096, 0u);
  EXPECT_EQ(a->scratch_bytes(2, 16) % 4096, 0u);
}

void expect_refused(const std::string& key, const std::function<void(ModelConfig&)>& change,
                    ModelConfig config = tiny_llama(false)) {
  change(config);
  try {
    check_model(config);
    ADD_FAILURE() << key << " was accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key, key);
  }
}

TEST(MakeModel, HeadsLargerThanTheDevicesKernelsHoldNameTheirKey) {
  const auto refused = [](ModelConfig config, int64_t head_dim, DeviceKind device) {
    config.heads = config.kv_heads = 2;
    config.hidden = 2 * head_dim;
    try {
      (void)make_model(config, DType::bf16, device);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key, "model.heads");
      return true;
    }
    return false;
  };
  // kernels/cuda: 256; rotary of kernels/host: 1024.
  EXPECT_TRUE(refused(tiny_llama(true), 258, DeviceKind::cuda));
  EXPECT_TRUE(refused(tiny_gpt2(true), 258, DeviceKind::cuda));
  EXPECT_TRUE(refused(tiny_llama(true), 1026, DeviceKind::host));
  EXPECT_FALSE(refused(tiny_llama(true), 1024, DeviceKind::host));
  EXPECT_FALSE(refused(tiny_gpt2(true), 1026, DeviceKind::host));
}

TEST(CheckModel, ImpossibleShapesNameTheirKey) {
  EXPECT_NO_THROW(check_model(tiny_llama(true)));
  EXPECT_NO_THROW(check_model(tiny_gpt2(true)));
  EXPECT_NO_THROW(check_model(ModelConfig{}));
  expect_refused("model.layers", [](ModelConfig& c) { c.layers = 0; });
  expect_refused("model.hidden", [](ModelConfig& c) { c.hidden = -24; });
  expect_refused("model.heads", [](ModelConfig& c) { c.heads = 5; });
  expect_refused("model.heads", [](ModelConfig& c) { c.heads = 8; });  // a head size of 3
  expect_refused("model.kv_heads", [](ModelConfig& c) { c.kv_heads = 3; });
  expect_refused("model.kv_heads", [](ModelConfig& c) { c.kv_heads = 0; });
  expect_refused(
      "model.kv_heads", [](ModelConfig& c) { c.kv_heads = 1; }, tiny_gpt2(true));
  expect_refused("model.ffn", [](ModelConfig& c) { c.ffn = 0; });
  expect_refused("model.vocab", [](ModelConfig& c) { c.vocab = int64_t(1) << 40; });
  expect_refused("model.max_seq", [](ModelConfig& c) { c.max_seq = 0; });
  expect_refused("model.rope_theta", [](ModelConfig& c) { c.rope_theta = 0; });
  expect_refused("model.norm_eps",
                 [](ModelConfig& c) { c.norm_eps = std::numeric_limits<double>::quiet_NaN(); });
}

}  // namespace
}  // namespace headrace::test
