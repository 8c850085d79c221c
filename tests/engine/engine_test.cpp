// SPDX-License-Identifier: Apache-2.0
#include "headrace/engine.h"

#include <gtest/gtest.h>

#include <limits>

#include "headrace/error.h"
#include "tests/engine/toy_program.h"
#include "tests/temp_dir.h"

namespace headrace {
namespace {

using test::ToyProgram;

struct NamedPlacement {
  const char* name;
  Placement placement;
  uint64_t host_memory = 256u << 20;
  nvme::EngineKind engine = nvme::EngineKind::automatic;
  unsigned prefetch_units = 2;
  unsigned threads = 0;
};

const NamedPlacement kPlacements[] = {
    {"AllDevice", {Tier::device, Tier::device, Tier::device, {}}},
    {"AllHost", {Tier::host, Tier::host, Tier::host, {}}},
    {"WeightsHostOptimizerNvme", {Tier::host, Tier::nvme, Tier::host, {}}},
    {"WeightsDeviceOptimizerHost", {Tier::device, Tier::host, Tier::host, {}}},
    {"WeightsNvmeOptimizerDevice", {Tier::nvme, Tier::device, Tier::host, Tier::host}},
    {"EverythingNvme", {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme}},
    {"EverythingNvmePosix",
     {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme},
     256u << 20,
     nvme::EngineKind::posix},
    {"EverythingNvmeTinyHost", {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme}, 6u << 20},
    {"EverythingNvmeNoPrefetch",
     {Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme},
     256u << 20,
     nvme::EngineKind::automatic,
     0},
    {"HostOneThread",
     {Tier::host, Tier::host, Tier::host, {}},
     256u << 20,
     nvme::EngineKind::automatic,
     2,
     1},
};

EngineOptions options_for(const NamedPlacement& p, DType precision, const std::string& path) {
  EngineOptions options;
  options.precision = precision;
  options.device_memory = 256u << 20;
  options.host_memory = p.host_memory;
  options.placement = p.placement;
  options.prefetch_units = p.prefetch_units;
  options.optimizer_threads = p.threads;
  options.nvme.paths = {path};
  options.nvme.engine = p.engine;
  return options;
}

class EveryPlacement : public testing::TestWithParam<std::tuple<NamedPlacement, DType>> {};

/// Five steps: two clipped, one skipped. The reference for the bits is all state on the device.
std::vector<std::byte> state_after(const EngineOptions& options) {
  ToyProgram program(options);
  EXPECT_FALSE(program.step(1, 0).skipped);
  EXPECT_FALSE(program.step(2, 0.1).skipped);
  EXPECT_TRUE(program.step(3, 0.1, std::numeric_limits<float>::infinity()).skipped);
  EXPECT_FALSE(program.step(3, 1e9).skipped);
  EXPECT_FALSE(program.step(4, 0.5).skipped);
  return program.state();
}

TEST_P(EveryPlacement, GivesTheSameBits) {
  const auto& [placement, precision] = GetParam();
  test::TempDir dir;
  const auto reference = state_after(options_for(kPlacements[0], precision, dir.path()));
  const auto here = state_after(options_for(placement, precision, dir.path()));
  ASSERT_EQ(reference.size(), here.size());
  EXPECT_TRUE(reference == here);
}

INSTANTIATE_TEST_SUITE_P(Engine, EveryPlacement,
                         testing::Combine(testing::ValuesIn(kPlacements),
                                          testing::Values(DType::f32, DType::bf16)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  dtype_name(std::get<1>(test.param));
                         });

/// The same program in double, with everything in plain arrays.
struct Reference {
  std::vector<double> w, m, v;
  double step(size_t unit, const UnitLayout& layout, uint64_t t, double clip_coefficient) {
    const auto o = ToyProgram::options();
    double sum = 0;
    for (const SegmentLayout& s : layout.segments) {
      for (int64_t i = s.offset; i < s.offset + s.elems; ++i) {
        const auto k = size_t(i);
        const double raw = test::gradient_of(float(w[k]), i, t), g = raw * clip_coefficient;
        sum += raw * raw;
        m[k] = o.beta1 * m[k] + (1 - o.beta1) * g;
        v[k] = o.beta2 * v[k] + (1 - o.beta2) * g * g;
        const double q = m[k] / (1 - std::pow(o.beta1, double(t))) /
                         (std::sqrt(v[k] / (1 - std::pow(o.beta2, double(t)))) + o.eps);
        w[k] -= o.lr * (q + (s.weight_decay ? o.weight_decay : 0.0) * w[k]);
      }
    }
    (void)unit;
    return sum;
  }
};

TEST(Engine, ComputesAdamWOnEverySegment) {
  test::TempDir dir;
  ToyProgram program(options_for(kPlacements[5], DType::f32, dir.path()));
  Engine& engine = program.engine();
  std::vector<Reference> references;
  for (uint32_t u = 0; u < engine.units().size(); ++u) {
    const UnitLayout& layout = engine.layout(UnitId{u});
    const auto n = size_t(layout.elems);
    Reference r{std::vector<double>(n), std::vector<double>(n), std::vector<double>(n)};
    for (const SegmentLayout& s : layout.segments) {
      for (int64_t i = s.offset; i < s.offset + s.elems; ++i) r.w[size_t(i)] = test::initial_weight(u, i);
    }
    references.push_back(std::move(r));
  }
  for (uint64_t t = 1; t <= 4; ++t) {
    double sum = 0;
    for (uint32_t u = 0; u < references.size(); ++u) {
      sum += references[u].step(u, engine.layout(UnitId{u}), t, 1.0);
    }
    EXPECT_NEAR(program.step(t, 0).grad_norm, std::sqrt(sum), 1e-5 * std::sqrt(sum));
  }
  for (uint32_t u = 0; u < references.size(); ++u) {
    engine.visit_state(UnitId{u}, StateAccess::read, [&](const StateTile& tile) {
      for (int64_t i = 0; i < tile.elems; ++i) {
        const double expected = references[u].w[size_t(tile.first + i)];
        ASSERT_NEAR(reinterpret_cast<const float*>(tile.weights)[i], expected, 2e-6)
            << "unit " << u << " " << i;
      }
    });
  }
}

TEST(Engine, NonFiniteGradientLeavesEveryBitUntouched) {
  for (float poison : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    test::TempDir dir;
    ToyProgram program(options_for(kPlacements[5], DType::bf16, dir.path()));
    program.step(1, 1.0);
    const auto before = program.state();
    const StepResult result = program.step(2, 1.0, poison);
    EXPECT_TRUE(result.skipped);
    EXPECT_FALSE(std::isfinite(result.grad_norm));
    EXPECT_TRUE(before == program.state());
  }
}

TEST(Engine, GathersOutOfTheDeclaredOrderAreServedCorrectly) {
  test::TempDir dir;
  ToyProgram program(options_for(kPlacements[5], DType::f32, dir.path()));
  Engine& engine = program.engine();
  const std::vector<UnitId> declared = {UnitId{0}, UnitId{1}, UnitId{2}, UnitId{3}};
  engine.expect(declared);
  for (uint32_t u : {0u, 3u, 1u, 5u, 2u, 2u}) {
    const WeightView w = engine.gather(UnitId{u});
    float first = 0;
    engine.compute().enqueue([&first, w] { first = reinterpret_cast<const float*>(w.data)[0]; });
    engine.compute().synchronize();
    EXPECT_EQ(first, test::initial_weight(u, 0));
    engine.release(UnitId{u});
  }
}

TEST(Engine, CountsTheBytesThatTheFormulaSays) {
  test::TempDir dir;
  NamedPlacement everything = kPlacements[5];
  ToyProgram program(options_for(everything, DType::bf16, dir.path()));
  program.step(1, 1.0);
  const Stats before = program.engine().stats();
  program.step(2, 1.0);
  const Stats after = program.engine().stats();
  uint64_t elems = 0;
  for (uint32_t u = 0; u < program.engine().units().size(); ++u) {
    elems += uint64_t((program.engine().layout(UnitId{u}).elems + 2047) / 2048 * 2048);
  }
  // Written: hi 2 + lo 2 + m 4 + v 4 and the gradient's 2. Read: lo, m, v, the gradient, hi for the update,
  // and hi for forward and backward less what is still in a device slot at the turn.
  EXPECT_EQ(after[Link::nvme_write].bytes - before[Link::nvme_write].bytes, elems * 14);
  const uint64_t read = after[Link::nvme_read].bytes - before[Link::nvme_read].bytes;
  EXPECT_LE(read, elems * (10 + 2 + 2 + 4));
  EXPECT_GE(read, elems * (10 + 2 + 2 + 2));
}

}  // namespace
}  // namespace headrace
