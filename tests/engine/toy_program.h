// SPDX-License-Identifier: Apache-2.0
// A program on the public engine whose right answer is easy to compute by hand: a few units of odd sizes,
// "forward" that reads weights, "gradients" that are a fixed function of weight, element and step. The
// reference keeps everything in plain vectors and updates with the AdamW formula in double.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "headrace/engine.h"
#include "tests/engine_state.h"
#include "tests/test_device.h"

namespace headrace::test {

inline std::vector<UnitSpec> toy_units() {
  return {{"embed", {{"table", {300, 40}, false}}},
          {"layer.0", {{"a", {257, 129}}, {"b", {31}, false}, {"c", {7}}, {"d", {1}, false}}},
          {"layer.1", {{"a", {257, 129}}, {"b", {31}, false}, {"c", {7}}, {"d", {1}, false}}},
          {"layer.2", {{"a", {257, 129}}, {"b", {31}, false}, {"c", {7}}, {"d", {1}, false}}},
          {"empty", {{"nothing", {0, 5}}}},
          {"head", {{"w", {1000, 1003}}, {"b", {3}, false}}}};
}

/// Small, odd, deterministic; different for every element.
inline float initial_weight(size_t unit, int64_t element) {
  return float(std::sin(double(element) * 0.37 + double(unit) * 1.7)) * 0.05f;
}
inline float gradient_of(float weight, int64_t element, uint64_t step) {
  return 0.01f * weight + 0.001f * float(std::cos(double(element) * 0.11 + double(step)));
}

class ToyProgram {
 public:
  explicit ToyProgram(EngineOptions options) : engine_(sized(std::move(options)), toy_units()) {
    for (uint32_t u = 0; u < engine_.units().size(); ++u) {
      order_.push_back(UnitId{u});
      initialize(UnitId{u});
    }
    for (uint32_t u = uint32_t(order_.size()); u-- > 0;) order_.push_back(UnitId{u});
  }

  Engine& engine() { return engine_; }

  /// Forward (reads every weight), backward (writes gradients that depend on the weights), update.
  StepResult step(uint64_t t, double clip, float poison = 0) {
    const auto units = uint32_t(engine_.units().size());
    engine_.expect(order_);
    for (uint32_t u = 0; u < units; ++u) {
      (void)engine_.gather(UnitId{u});
      engine_.release(UnitId{u});
    }
    for (uint32_t u = units; u-- > 0;) {
      const WeightView w = engine_.gather(UnitId{u});
      const GradientView g = engine_.gradient(UnitId{u});
      engine_.compute().enqueue([w, g, t, poison] { fill_gradient(w, g, t, poison); });
      engine_.release(UnitId{u});
      engine_.reduce_scatter(UnitId{u});
    }
    return engine_.step({.adam = options(), .grad_clip = clip, .t = t});
  }

  static adam::Options options() {
    return {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  }

  std::vector<std::byte> state() { return state_bytes(engine_); }

 private:
  static EngineOptions sized(EngineOptions options) {
    options.device = kTestDevice;
    return options;
  }

  static void fill_gradient(const WeightView& w, const GradientView& g, uint64_t t, float poison) {
    for (const SegmentLayout& segment : w.layout->segments) {
      for (int64_t i = 0; i < segment.elems; ++i) {
        const int64_t at = segment.offset + i;
        const float weight = w.dtype == DType::f32 ? reinterpret_cast<const float*>(w.data)[at]
                                                   : to_float(reinterpret_cast<const bf16*>(w.data)[at]);
        g.data[at] += gradient_of(weight, at, t);
      }
    }
    if (poison != 0 && w.layout->param_count > 5) g.data[3] = poison;
  }

  void initialize(UnitId unit) {
    const UnitLayout& layout = engine_.layout(unit);
    engine_.visit_state(unit, StateAccess::overwrite, [&](const StateTile& tile) {
      for (const SegmentLayout& segment : layout.segments) {
        const int64_t begin = std::max(segment.offset, tile.first);
        const int64_t end = std::min(segment.offset + segment.elems, tile.first + tile.elems);
        for (int64_t at = begin; at < end; ++at) set(tile, at - tile.first, initial_weight(size_t(unit), at));
      }
    });
  }

  static void set(const StateTile& tile, int64_t i, float value) {
    if (tile.arrays.w) {
      tile.arrays.w[i] = value;
      return;
    }
    const SplitMaster split = split_master(value);
    tile.arrays.hi[i] = split.hi;
    if (tile.arrays.lo) tile.arrays.lo[i] = split.lo;
    if (tile.arrays.lo8) tile.arrays.lo8[i] = uint8_t(split.lo >> 8);
  }

  Engine engine_;
  std::vector<UnitId> order_;
};

}  // namespace headrace::test
