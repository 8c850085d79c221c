// SPDX-License-Identifier: Apache-2.0
// The least a program has to do with the engine: one unit, one gradient, one step, with the optimizer's state
// on NVMe. A gradient of all ones moves every weight by the learning rate against it: AdamW's first step is
// -lr g / (|g| + eps), whatever the betas.
#include <headrace/engine.h>
#include <headrace/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>

int main(int argc, char** argv) {
  using namespace headrace;
  if (argc != 2) return 2;
  std::filesystem::create_directories(argv[1]);

  EngineOptions options;
  options.precision = DType::f32;
  options.device = DeviceChoice::host;
  options.device_memory = 64u << 20;
  options.host_memory = 256u << 20;
  options.placement = {
      .weights = Tier::host, .optimizer = Tier::nvme, .activations = Tier::device, .gradients = std::nullopt};
  options.nvme.paths = {argv[1]};
  try {
    Engine engine(options, {{.name = "layer", .segments = {{.name = "weight", .shape = {64, 80}}}}});
    constexpr UnitId kLayer{0};
    // Overwriting shows zeros; what the visitor leaves is the initial state: weights of 1, moments of 0.
    engine.visit_state(kLayer, StateAccess::overwrite, [](const StateTile& tile) {
      std::fill_n(reinterpret_cast<float*>(tile.weights), tile.elems, 1.0f);
    });
    const std::array<UnitId, 1> order = {kLayer};
    engine.expect(order);
    engine.gather(kLayer);
    const GradientView gradient = engine.gradient(kLayer);
    engine.compute().enqueue([gradient] {
      for (int64_t i = 0; i < gradient.layout->segments[0].elems; ++i) gradient.segment(0)[i] = 1.0f;
    });
    engine.release(kLayer);
    engine.reduce_scatter(kLayer);
    const StepResult result = engine.step({.adam = {.lr = 0.5}, .grad_clip = 0, .t = 1});
    std::printf("norm %.6f\n", result.grad_norm);
    if (std::abs(result.grad_norm - std::sqrt(64.0 * 80.0)) > 1e-3) return 1;

    const WeightView weights = engine.gather(kLayer);
    engine.compute().synchronize();
    const auto* values = static_cast<const float*>(weights.segment(0));
    const bool moved = std::abs(values[0] - 0.5f) < 1e-5f && std::abs(values[64 * 80 - 1] - 0.5f) < 1e-5f;
    std::printf("first weight %.6f\n", double(values[0]));
    engine.release(kLayer);
    return moved ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
